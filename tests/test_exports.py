"""`import ottla` offers the public names, and nothing else."""

import subprocess
import sys

import pytest

import ottla


def test_the_public_names() -> None:
    names = ["Broker", "Cluster", "Config", "__version__", "errors", "serve", "spawn", "testing"]
    assert sorted(ottla.__all__) == names
    for name in ottla.__all__:
        assert getattr(ottla, name) is not None
    assert ottla.Broker.__module__ == "ottla.embedded.broker"
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        _ = getattr(ottla, "Kafka")  # noqa: B009 - a type checker knows that it does not exist


def test_the_test_kit_needs_no_import_of_its_own() -> None:
    """The pages use `ottla.testing` after `import ottla`."""
    code = "import ottla; print(ottla.testing.replay_requests.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "replay_requests"


def test_importing_the_package_imports_no_part_of_it() -> None:
    code = "import ottla, sys; print([name for name in sys.modules if name.startswith('ottla.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
