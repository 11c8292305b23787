"""The names of folders in a data folder: those of partitions, and those that are set aside."""

from __future__ import annotations

import re
from typing import Final

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
MAX_FOLDER_NAME: Final = 255
_PARTITION: Final = r"(.+)-(\d+)"
_MARKED: Final = r"(.+)-(\d+)\.[0-9a-f]{32}(-delete|-stray|-future)"


def marked_folder(topic: str, partition: int, token: str, suffix: str) -> str:
    """`topic-0.<token>-delete`. A long topic name is cut as in Kafka, to fit a file name."""
    tail = f"-{partition}.{token}{suffix}"
    return topic[: MAX_FOLDER_NAME - len(tail)] + tail


def parse_folder(name: str) -> tuple[str, int, str] | None:
    """Topic, partition and suffix (empty for a partition's own folder), or None for other folders."""
    if (marked := re.fullmatch(_MARKED, name)) is not None:
        return marked[1], int(marked[2]), marked[3]
    partition = re.fullmatch(_PARTITION, name)
    return None if partition is None else (partition[1], int(partition[2]), "")
