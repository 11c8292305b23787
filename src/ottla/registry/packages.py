"""Finds schema formats whose packages are not installed. Avro needs no packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

# The packages of `ottla[registry]`, by their import names.
NEEDED: Final = {
    "JSON Schema": ("jsonschema", "referencing", "re2"),
    "Protobuf": ("google.protobuf", "google.type"),
}


def missing_formats() -> dict[str, list[str]]:
    """The formats that cannot be served, and the missing packages of each. This imports nothing."""
    missing = {name: [package for package in packages if not _is_there(package)] for name, packages in NEEDED.items()}
    return {name: packages for name, packages in missing.items() if packages}


def advice() -> str | None:
    """The warning to log at startup; None if nothing is missing."""
    missing = missing_formats()
    if not missing:
        return None
    lacking = ", ".join(sorted({package for packages in missing.values() for package in packages}))
    return (
        f"schemas of {' and '.join(missing)} will be refused: Python lacks {lacking}; pip install 'ottla[registry]'"
        " brings what they need"
    )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False
