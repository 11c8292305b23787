"""A data folder at some moment, as a second folder of hard links. A file that is written later is copied first."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from typing import Final

from ottla.log.files import FOLDER_MODE, LOCK_FILE

_UNFINISHED: Final = ".tmp"


class FolderSnapshot:
    """The hard-linked files of a folder. They are removed with this object, or by `close`."""

    def __init__(self, root: str) -> None:
        parent, name = os.path.split(root)
        self.folder = tempfile.mkdtemp(prefix=f".{name}-snapshot-", dir=parent)
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        _link_tree(root, self.folder)

    def restore_to(self, root: str) -> None:
        """Make `root` hold exactly these files. Its lock stays."""
        if not self._remove.alive:
            raise FileNotFoundError(f"the snapshot in {self.folder} was closed")
        os.makedirs(root, FOLDER_MODE, exist_ok=True)
        for entry in os.scandir(root):
            if entry.name == LOCK_FILE:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.remove(entry.path)
        _link_tree(self.folder, root)

    def close(self) -> None:
        self._remove()


def _link_tree(source: str, target: str) -> None:
    for entry in os.scandir(source):
        to = f"{target}/{entry.name}"
        if entry.is_dir():
            # The topic, and its folder, may be deleted in the meantime.
            with suppress(FileNotFoundError):
                os.mkdir(to, FOLDER_MODE)
                _link_tree(entry.path, to)
        elif entry.name != LOCK_FILE and not entry.name.endswith(_UNFINISHED):
            with suppress(FileNotFoundError):
                _link(entry.path, to)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
