"""Imports the whole package before any test of this folder.

`pytester` forgets, after a test, every module that was imported during it. A module that is imported a second time
would not know the classes and handlers of the first copy, and later tests in the same process would fail.
"""

import importlib
import pkgutil

import ottla

PARTS = (
    "client",
    "config",
    "coordinator",
    "log",
    "metadata",
    "multibroker",
    "records",
    "replication",
    "server",
    "testing",
    "wire",
)

for part in PARTS:
    package = importlib.import_module(f"ottla.{part}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)

assert ottla.__version__
