"""CRC-32C, without the start-up cost of its Python package.

`import crc32c` runs `importlib.metadata` (and with it `email`, `zipfile`, …) only to find its own version. That takes
30 ms or more of a start that must stay below 300 ms. Only the extension module is needed, so it is loaded directly.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING


def _load() -> Callable[[bytes | bytearray | memoryview, int], int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and isinstance(extension.loader, ExtensionFileLoader):
            module = extension.loader.create_module(extension)
            extension.loader.exec_module(module)
            function: Callable[[bytes | bytearray | memoryview, int], int] | None = getattr(module, "crc32c", None)
            if function is not None:
                return function
    public: Callable[[bytes | bytearray | memoryview, int], int] = import_module("crc32c").crc32c
    return public


if TYPE_CHECKING:

    def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int: ...
else:
    crc32c = _load()
