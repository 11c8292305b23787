"""What is generated is up to date, and what the documentation shows as code runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run scripts/generate: {done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md"])
def test_python_examples_run(page: str, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)
    assert examples, f"{page} has no example"
    for number, code in enumerate(examples):
        script = tmp_path / f"example_{number}.py"
        script.write_text(code)
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"example {number} of {page}:\n{code}\n{done.stderr}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_a_tour_names_are_there(page: str) -> None:
    """A path is named from the root, from src/ottla, or from a package in it; a bare file name stands for any file."""
    text = (ROOT / page).read_text()
    packages = [ROOT, ROOT / "src" / "ottla", *(path for path in (ROOT / "src" / "ottla").rglob("*") if path.is_dir())]
    named = {name for name in re.findall(r"`([\w./]+(?:\.py|/))`", text) if "<" not in name}
    assert len(named) > 20
    assert [name for name in sorted(named) if not any((package / name).exists() for package in packages)] == []
