"""kafka-storage: assign a new data folder to a cluster. Without it, Ottla does this at the first start."""

from __future__ import annotations

import argparse
import os
import secrets
import sys

from ottla.config import Config, ConfigError
from ottla.log.checkpoints import META_FILE, MetaProperties
from ottla.log.files import PosixDisk
from ottla.wire.primitives import uuid_to_base64


def new_id() -> str:
    """A new id that does not begin with a dash, which would look like an option."""
    while (text := uuid_to_base64(secrets.token_bytes(16))).startswith("-"):
        pass
    return text


def format_folders(config: Config, cluster_id: str | None) -> list[str]:
    """Write meta.properties where it is missing. Returns the new folders."""
    made: list[str] = []
    if cluster_id is None:
        return made
    for folder in config.log_dirs:
        if not os.path.exists(os.path.join(folder, META_FILE)):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            MetaProperties(cluster_id, config.node_id, new_id()).write(PosixDisk(folder))
            made.append(folder)
    return made


def run(name: str, words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("random-uuid")
    formatting = verbs.add_parser("format", allow_abbrev=False)
    formatting.add_argument("--config", "-c", required=True)
    formatting.add_argument("--cluster-id", "-t", required=True)
    formatting.add_argument("--ignore-formatted", "-g", action="store_true")
    formatting.add_argument("--standalone", "-s", action="store_true")
    formatting.add_argument("--no-initial-controllers", "-N", action="store_true")
    formatting.add_argument("--release-version", "-r")
    arguments = parser.parse_args(words)
    if arguments.verb == "random-uuid":
        print(new_id())
        return 0
    try:
        config = Config.load(arguments.config, environ={}, overrides={}, preset=None)
        made = format_folders(config, arguments.cluster_id)
    except (ConfigError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    for folder in made:
        print(f"Formatting metadata directory {folder} with metadata.version {arguments.release_version or '4.3-IV0'}.")
    if made or arguments.ignore_formatted:
        return 0
    print(
        f"Log directory {config.log_dirs[0]} is already formatted. Use --ignore-formatted to ignore.", file=sys.stderr
    )
    return 1
