"""The public names, and nothing else, are what `import ottla` offers."""

import subprocess
import sys

import pytest

import ottla


def test_the_public_names() -> None:
    assert sorted(ottla.__all__) == ["Broker", "Cluster", "Config", "__version__", "errors", "serve", "spawn"]
    for name in ottla.__all__:
        assert getattr(ottla, name) is not None
    assert ottla.Broker.__module__ == "ottla.embedded.broker"
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        _ = ottla.Kafka


def test_importing_the_package_imports_no_part_of_it() -> None:
    code = "import ottla, sys; print([name for name in sys.modules if name.startswith('ottla.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
