"""Configuration: one table of Kafka's keys, and their values from files, the environment and the command line.

`Config.load()` reads and validates; `config["num.partitions"]` is the typed value. Topics and groups fall back to the
broker's keys: `config.topic({"retention.ms": "1000"})["retention.ms"]`.
"""

from ottla.config.broker import BROKER_KEYS, Config
from ottla.config.keys import ChangeRefused, ConfigError, ConfigKey
from ottla.config.listeners import Listener, parse_listeners
from ottla.config.loading import PRESETS
from ottla.config.resources import GroupConfig, TopicConfig
from ottla.config.topic_keys import CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS

__all__ = [
    "BROKER_KEYS",
    "CLIENT_METRICS_KEYS",
    "GROUP_KEYS",
    "PRESETS",
    "TOPIC_KEYS",
    "ChangeRefused",
    "Config",
    "ConfigError",
    "ConfigKey",
    "GroupConfig",
    "Listener",
    "TopicConfig",
    "parse_listeners",
]
