"""The program of the image: `python -m ottla.image.start [KAFKA_KEY=VALUE …]`, called by /etc/kafka/docker/run.

A mounted server.properties is read first, then the environment. Only data is written, so the root file system can be
read-only.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ottla.cli import serve
from ottla.cli.main import build_parser
from ottla.config import Config, ConfigError
from ottla.image.environment import from_environment
from ottla.kafka_tools.storage import format_folders

MOUNTED = (
    "/mnt/shared/config/server.properties",
    "/bitnami/kafka/config/server.properties",
    "/opt/bitnami/kafka/config/server.properties",
    "/opt/kafka/config/server.properties",
)
DEFAULTS = "/etc/kafka/docker/server.properties"
SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
DATA = "/var/lib/kafka/data"
BITNAMI_VOLUMES = ("/bitnami/kafka/data", "/bitnami/kafka", "/bitnami")

logger = logging.getLogger(__name__)


def settings_of(environ: Mapping[str, str], mounted: str | None) -> tuple[dict[str, str], str | None]:
    """The settings that override the file, and the id of the cluster."""
    found = from_environment(environ)
    for note in found.notes:
        logger.info("%s", note)
    if mounted is not None:
        return found.settings, found.cluster_id
    folder = data_folder()
    if not found.settings and folder == DATA:
        return {}, found.cluster_id
    # As in Kafka's image, one variable disables the defaults of the file; a single node still needs these.
    data = {} if "log.dir" in found.settings else {"log.dirs": folder}
    return {**data, **SINGLE_NODE, **found.settings}, found.cluster_id


def data_folder() -> str:
    """The default data folder: a volume at one of Bitnami's paths, if there is one."""
    for volume in BITNAMI_VOLUMES:
        if os.path.ismount(volume):
            if os.access(volume, os.W_OK):
                return BITNAMI_VOLUMES[0]
            logger.info("the volume at %s cannot be written by user %d, and is not used", volume, os.getuid())
    return DATA


def announce(node_id: int) -> None:
    """When clients are served, print the lines that other programs wait for."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S},000"
    for line in (
        f"[BrokerLifecycleManager id={node_id}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
        f"[KafkaRaftServer nodeId={node_id}] Kafka Server started",
        f"[KafkaServer id={node_id}] started",
    ):
        print(f"[{now}] INFO {line}", flush=True)


def main(words: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    environ = {**os.environ, **dict(word.split("=", 1) for word in words if "=" in word)}
    mounted = next((path for path in MOUNTED if Path(path).is_file()), None)
    try:
        settings, cluster_id = settings_of(environ, mounted)
        path = mounted or (None if settings else DEFAULTS)
        config = Config.load(path, overrides=settings, environ=environ, preset=None)
        format_folders(config, cluster_id)
    except (ConfigError, OSError, ValueError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        return 1
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    if path is None:
        options += ["--preset", "kafka"]
    parser = build_parser(["serve"], alone=True)
    arguments = parser.parse_args(["serve", *([path] if path else []), "--no-console", *options])
    arguments.on_started = lambda: announce(config.node_id)
    return serve.run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
