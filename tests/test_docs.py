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
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
