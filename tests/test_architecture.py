"""The shape of the code: imports point one way, the world is passed in, files and functions stay readable."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ottla"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From left to right: a layer imports itself, the layers to its left, and the leaves.
LAYERS = ("wire", "records", "log", "raft", "metadata", "replication", "coordinator", "server", "http")
LEAVES = (
    "answers",
    "api_table",
    "enums",
    "errors",
    "clock",
    "config",
    "durations",
    "lazy_imports",
    "re2_patterns",
    "system",
)
# The parts around the layers: each imports itself, the leaves, and the parts listed here.
OUTER = {
    "": {"embedded", "multibroker", "testing"},
    "__main__": {"cli"},
    "bench": {"wire", "records", "metadata", "server", "client", "embedded", "multibroker", "testing", "spark"},
    "cli": {
        "wire",
        "records",
        "log",
        "metadata",
        "server",
        "http",
        "client",
        "console",
        "embedded",
        "multibroker",
        "registry",
        "testing",
        "workers",
        "spark",
        "bench",
    },
    "client": {"wire", "records"},
    # The tours of the console run on a separate cluster.
    "console": {"wire", "records", "log", "server", "http", "client", "registry", "multibroker"},
    "embedded": {*LAYERS, "client", "console", "registry"},
    "image": {"cli", "kafka_tools"},
    "kafka_tools": {"wire", "records", "log", "client", "cli"},
    "multibroker": {*LAYERS, "console", "embedded", "registry"},
    "pytest_plugin": {"embedded", "multibroker", "testing"},
    "registry": {"records", "http", "client"},
    "spark": {"wire", "records", "log", "client"},
    "testing": {*LAYERS, "client", "embedded", "multibroker", "registry"},
    "workers": {*LAYERS},
}
# Decision 5 of the architecture: below this line, time, disk, network and chance are passed in.
BELOW_THE_RIM = (*LEAVES, "wire", "records", "log", "raft", "metadata", "replication", "coordinator")

# Calls that access the outside world, and the modules that may use them.
WORLD = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"},
    "os": {
        "open",
        "urandom",
        "listdir",
        "scandir",
        "remove",
        "unlink",
        "rename",
        "replace",
        "fsync",
        "mkdir",
        "makedirs",
    },
    "datetime": {"now", "utcnow", "today"},
}
WORLD_MODULES = {"random", "secrets", "socket", "tempfile", "shutil", "subprocess", "uuid"}
SEAMS = {
    "clock.py": "the clock itself",
    "log/files.py": "the disk itself",
    "log/multi_dir_disk.py": "a disk of several folders",
    "log/folder_snapshot.py": "a disk at some moment",
    "system.py": "the operating system itself",
    "lazy_imports.py": "keeps a file handle, to import modules with",
    "config/properties.py": "reads the file that the command line names, before there is a disk seam",
}

# Modules that may import inside functions, and why they cannot use lazy imports.
IMPORTS_IN_FUNCTIONS = {
    "bench/embedded.py": "measures how long the import takes",
    "bench/in_tests.py": "measures a first test, without the imports of its own client",
    "bench/pipelines_job.py": "runs inside Spark, after the settings of the run",
    "bench/spark_job.py": "runs inside Spark, with or without Ottla's data source",
}

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 90
# What may be longer, and how long: these numbers may only shrink.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Every node, found once: the walk through all modules takes longer than what a test does with them."""
    return list(ast.walk(tree))


def name_of(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


def part_of(module: Path) -> str:
    """The layer, leaf or front end that a module belongs to; empty for the package's own front door."""
    relative = module.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py").removeprefix("__init__")


def imported_parts(tree: ast.AST, module: Path) -> Iterator[tuple[str, int]]:
    """Parts of ottla that a module imports, also inside functions; imports for type checking count too."""
    package = ["ottla", *module.relative_to(PACKAGE).parent.parts]
    for node in nodes_of(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{prefix}.{alias.name}" for alias in node.names] if prefix == "ottla" else [prefix]
        for name in names:
            parts = name.split(".")
            if parts[0] == "ottla" and len(parts) > 1:
                yield parts[1], node.lineno


def allowed_for(part: str) -> set[str]:
    if part in LEAVES:
        # config and errors stand alone; the clock may raise errors.
        return {part, "enums", "errors", "lazy_imports"}
    if part in LAYERS:
        return {*LAYERS[: LAYERS.index(part) + 1], *LEAVES}
    if part == "client":  # it knows nothing of a broker, its settings included
        return {part, "__version__", "enums", "errors", "clock", *OUTER[part]}
    return {part, "__version__", *LEAVES, *OUTER[part]}


def test_imports_point_one_way() -> None:
    wrong = [
        f"{name_of(module)}:{line} imports {other}"
        for module in MODULES
        for other, line in imported_parts(tree_of(module), module)
        if other not in allowed_for(part_of(module))
    ]
    assert not wrong


def function_level_imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules that are imported inside functions."""
    for function in nodes_of(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield "." * node.level + (node.module or ""), node.lineno


def test_imports_stand_at_the_top() -> None:
    """What must not be imported with its user is lazy: see `ottla/lazy_imports.py`."""
    inside = {
        name_of(module): sorted(set(found))
        for module in MODULES
        if (found := list(function_level_imports(tree_of(module))))
        and part_of(module) != "spark"
        and not name_of(module).startswith("cli/pipeline")
    }
    assert {name: found for name, found in inside.items() if name not in IMPORTS_IN_FUNCTIONS} == {}
    assert set(IMPORTS_IN_FUNCTIONS) <= set(inside), "a module needs no exception any more: take it off the list"


def lazy_modules(statements: list[ast.stmt]) -> dict[str, str]:
    """`name = lazy("module")`, by name."""
    return {
        node.targets[0].id: node.value.args[0].value
        for node in statements
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "lazy"
        and isinstance(node.value.args[0], ast.Constant)
    }


def imported_modules(statements: list[ast.stmt]) -> dict[str, str]:
    """What each imported name stands for, as if all of them were modules."""
    found: dict[str, str] = {}
    for node in statements:
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_lazy_modules_are_those_that_type_checkers_see() -> None:
    wrong = []
    for module in MODULES:
        for node in nodes_of(tree_of(module)):
            if isinstance(node, ast.If):
                known = imported_modules(node.body)
                wrong += [
                    f"{name_of(module)}:{node.lineno} {name} is {target}, not {known.get(name)}"
                    for name, target in lazy_modules(node.orelse).items()
                    if known.get(name) != target
                ]
    assert not wrong


def test_every_part_has_its_place() -> None:
    """A new package needs a decision: it is a layer, a leaf, or a part around the layers."""
    assert {part_of(module) for module in MODULES} == {*LAYERS, *LEAVES, *OUTER}


def world_calls(tree: ast.AST) -> Iterator[str]:
    aliases: dict[str, str] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.split(".")[0]] = alias.name
                if alias.name.split(".")[0] in WORLD_MODULES:
                    yield f"line {node.lineno} imports {alias.name}"
        elif isinstance(node, ast.ImportFrom) and not node.level:
            if (node.module or "").split(".")[0] in WORLD_MODULES:
                yield f"line {node.lineno} imports from {node.module}"
            for alias in node.names:
                if alias.name in WORLD.get(node.module or "", ()):
                    yield f"line {node.lineno} imports {node.module}.{alias.name}"
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"line {node.lineno} calls open()"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id, "")
            if node.attr in WORLD.get(module, ()):
                yield f"line {node.lineno} uses {module}.{node.attr}"


def test_the_world_is_passed_in() -> None:
    reaching = {
        name_of(module): found
        for module in MODULES
        if part_of(module) in BELOW_THE_RIM and (found := list(world_calls(tree_of(module))))
    }
    assert {name: found for name, found in reaching.items() if name not in SEAMS} == {}
    assert set(SEAMS) <= set(reaching), "a seam reaches for nothing any more: take it off the list"


def test_the_check_finds_forbidden_calls() -> None:
    source = (
        "import time, random\nfrom uuid import uuid4\nimport os as system\n"
        "from time import monotonic\nfrom socket import socket\n"
        "def f(a=1):\n    time.time()\n    system.urandom(3)\n    open('x')\n    timer.time()\n    file.open()\n"
    )
    assert len(list(world_calls(ast.parse(source)))) == 7


def test_files_can_be_read_in_a_sitting() -> None:
    lengths = {name_of(module): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LONG_FILES.get(name, MAX_FILE_LINES)} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{name_of(module)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module in MODULES
        for node in nodes_of(tree_of(module))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {
        name: lines for name, lines in lengths.items() if lines > LONG_FUNCTIONS.get(name, MAX_FUNCTION_LINES)
    } == {}


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_the_repository_has_no_paths_outside_it() -> None:
    """A clone is self-contained: no path may point outside it, or to the folders of one machine."""
    outside = re.compile(rb"\.\./shared|(?<![\w./-])/(?:work|root|home/[a-z]+)/[a-z.]")
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked_files()
        if path != Path(__file__) and (match := outside.search(path.read_bytes()))
    ]
    assert not found


def test_no_module_has_a_todo() -> None:
    later = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
    found = [
        f"{name_of(module)}:{number}"
        for module in MODULES
        for number, line in enumerate(module.read_text().splitlines(), 1)
        if later.search(line)
    ]
    assert not found


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(name for group in project["dependency-groups"].values() for name in group),
    ]
    names = {re.split(r"[^\w-]", requirement)[0] for requirement in wanted}
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert {name for name in names if f"`{name}`" not in page} == set()
    listed = {
        name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
    }
    assert listed <= names, "the page explains what is no longer needed"
