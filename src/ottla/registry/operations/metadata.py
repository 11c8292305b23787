"""Metadata and rules that a schema inherits from the previous version and from the config."""

from __future__ import annotations

from dataclasses import replace

from ..entities import SchemaEntry, merge_metadata, merge_rule_sets, version_property, with_version_property
from ..records import Config


def with_settings(
    config: Config, entry: SchemaEntry, previous: SchemaEntry | None, new_version: int | None
) -> SchemaEntry:
    """The entry with its own metadata and rules, or those of the previous version, merged with those of the config.

    With `new_version`, the version is written into the metadata if the request or the metadata contains a version.
    """
    inherited = previous if previous is not None else entry
    metadata = entry.metadata if entry.metadata is not None else inherited.metadata
    metadata = merge_metadata(merge_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rule_set = entry.rule_set if entry.rule_set is not None else inherited.rule_set
    rule_set = merge_rule_sets(merge_rule_sets(config.get("defaultRuleSet"), rule_set), config.get("overrideRuleSet"))
    if new_version is not None and (entry.version != 0 or version_property(metadata) is not None):
        metadata = with_version_property(metadata, new_version)
    return replace(entry, metadata=metadata, rule_set=rule_set, md5=b"")
