"""The coordinators of a broker: of groups, of transactions, and of share groups; started and stopped together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.server.groups import GroupsOfBroker

if TYPE_CHECKING:
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server.share.manager import ShareGroups
    from ottla.server.transactions import TransactionsOfBroker


class Coordinators:
    """Each is led through the partitions of its internal topic, and follows the metadata."""

    def __init__(
        self, groups: GroupsOfBroker, transactions: TransactionsOfBroker, new_share: Callable[[], ShareGroups]
    ) -> None:
        self.groups = groups
        self.transactions = transactions
        self._new_share = new_share
        self.share_in_use: ShareGroups | None = None
        """Share groups, if any request about them came yet."""
        self._metadata_log: MetadataSource

    def start(self, metadata_log: MetadataSource) -> None:
        """Load what they keep in the logs."""
        self._metadata_log = metadata_log
        self.groups.start()
        metadata_log.subscribe(self.groups.metadata_changed)
        self.transactions.start()
        metadata_log.subscribe(self.transactions.metadata_changed)

    def stop(self) -> None:
        self.transactions.stop()
        self.groups.stop()
        if self.share_in_use is not None:
            self.share_in_use.stop()
            self.share_in_use = None

    @property
    def share(self) -> ShareGroups:
        """Share groups, from the first request about them on."""
        share = self.share_in_use
        if share is None:
            share = self.share_in_use = self._new_share()
            self._metadata_log.subscribe(share.states.metadata_changed)
        return share
