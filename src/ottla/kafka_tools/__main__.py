"""`python -m ottla.kafka_tools kafka-topics.sh --list …`: what the scripts of the image call."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import PurePath

TOOLS = {
    "kafka-topics": "topics",
    "kafka-console-producer": "producer",
    "kafka-console-consumer": "consumer",
    "kafka-consumer-groups": "groups",
    "kafka-configs": "configs",
    "kafka-acls": "acls",
    "kafka-get-offsets": "cluster",
    "kafka-cluster": "cluster",
    "kafka-broker-api-versions": "cluster",
    "kafka-storage": "storage",
}


def main(words: list[str]) -> int:
    name = PurePath(words[0]).name.removesuffix(".sh") if words else ""
    if name not in TOOLS:
        print(f"there is no tool '{name}' here; the tools are {', '.join(TOOLS)}", file=sys.stderr)
        return 1
    code: int = import_module(f"ottla.kafka_tools.{TOOLS[name]}").run(name, words[1:])
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
