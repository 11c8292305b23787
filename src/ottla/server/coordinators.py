"""The coordinators of a broker: of groups, of transactions, and of share groups; started and stopped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy_imports import lazy
from ottla.server.groups import GroupsOfBroker
from ottla.server.transactions import TransactionsOfBroker

if TYPE_CHECKING:
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server.services import CoordinatorServices
    from ottla.server.share import manager as share_manager
    from ottla.server.share import state as share_state
    from ottla.server.share.manager import ShareGroups
    from ottla.server.share.state import CreateTopic
else:
    share_manager = lazy("ottla.server.share.manager")
    share_state = lazy("ottla.server.share.state")


class Coordinators:
    """Each coordinator follows the metadata, and serves the partitions of its internal topic that this broker leads."""

    def __init__(
        self,
        services: CoordinatorServices,
        metadata_log: MetadataSource,
        create_share_state_topic: CreateTopic,
        *,
        answers_before_markers: bool,
    ) -> None:
        """With `answers_before_markers`, EndTxn is answered while markers are still being written."""
        self._services = services
        self._metadata_log = metadata_log
        self._create_share_state_topic = create_share_state_topic
        self.groups = GroupsOfBroker(services, lambda: self.share.states)
        self.transactions = TransactionsOfBroker(
            services,
            lambda index: self.groups.coordinator.shard(index),
            answers_before_markers=answers_before_markers,
        )
        self.share_in_use: ShareGroups | None = None
        """Share groups, if they have been used."""

    def start(self) -> None:
        """Load their state from the logs."""
        self.groups.start()
        self._metadata_log.subscribe(self.groups.metadata_changed)
        self.transactions.start()
        self._metadata_log.subscribe(self.transactions.metadata_changed)

    def stop(self) -> None:
        self.transactions.stop()
        self.groups.stop()
        if self.share_in_use is not None:
            self.share_in_use.stop()
            self.share_in_use = None

    @property
    def share(self) -> ShareGroups:
        """Share groups, created with the first request."""
        share = self.share_in_use
        if share is None:
            states = share_state.ShareStates(self._services, self._create_share_state_topic)
            share = self.share_in_use = share_manager.ShareGroups(self._services, states)
            self._metadata_log.subscribe(states.metadata_changed)
        return share
