"""kafka-console-producer: lines of the standard input become records."""

from __future__ import annotations

from ottla.cli.common import parse_settings
from ottla.cli.main import main
from ottla.kafka_tools.common import new_parser


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    parser.add_argument("--topic", required=True)
    for option in ("--property", "--reader-property", "--producer-property", "--command-property"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("--producer.config", dest="producer_config")
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.add_argument("--request-required-acks", "--acks", choices=("0", "1", "-1", "all"), default="-1")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--timeout", type=int)
    arguments = parser.parse_args(words)
    reader = parse_settings([*arguments.property, *arguments.reader_property])
    producer = parse_settings([*arguments.producer_property, *arguments.command_property])
    acks = {"-1": "all"}.get(arguments.request_required_acks, arguments.request_required_acks)
    command = ["produce", arguments.topic, "--format", "raw", "--bootstrap", arguments.bootstrap_server, "--acks", acks]
    if acks != "all":
        command.append("--no-idempotence")
    if reader.get("parse.key", "false") == "true":
        command.append(f"--key-separator={reader.get('key.separator', chr(9))}")
    if "null.marker" in reader:
        command.append(f"--null={reader['null.marker']}")
    if codec := arguments.compression_codec or producer.get("compression.type"):
        command.append(f"--compression={codec}")
    if config := arguments.command_config or arguments.producer_config:
        command.append(f"--client-config={config}")
    return main(command)
