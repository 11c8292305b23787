"""A sentence about each key, for DescribeConfigs and the generated tables of the documentation.

A broker key that is only the default of a topic key uses the topic key's text. Likewise a group key uses the text of
the broker key that it overrides.
"""

from __future__ import annotations

from ottla.config.docs_security import SECURITY_DOCS
from ottla.config.keys import ConfigKey
from ottla.config.topic_keys import CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS

_TOPIC_OF = {synonym: key.name for key in TOPIC_KEYS.values() for synonym in key.synonyms[:1]}


def doc_for(key: ConfigKey) -> str:
    if TOPIC_KEYS.get(key.name) is key:
        return TOPIC_DOCS[key.name]
    if GROUP_KEYS.get(key.name) is key:
        if key.synonyms:
            return f"For this group only: {_decapitalized(BROKER_DOCS[key.synonyms[0]])}"
        return GROUP_DOCS[key.name]
    if CLIENT_METRICS_KEYS.get(key.name) is key:
        return CLIENT_METRICS_DOCS[key.name]
    own = BROKER_DOCS.get(key.name) or SECURITY_DOCS.get(key.name)
    if own is not None:
        return own
    topic_key = _TOPIC_OF[key.name]
    return f"{TOPIC_DOCS[topic_key]} Used for topics that do not set {topic_key}."


def _decapitalized(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


TOPIC_DOCS = {
    "cleanup.policy": (
        "What happens to old records: delete drops whole segments by age or size, compact keeps the last record of "
        "each key; both together do both."
    ),
    "compression.gzip.level": "Level for gzip where the broker compresses itself; -1 is the codec's default.",
    "compression.lz4.level": "Level for lz4 where the broker compresses itself.",
    "compression.type": "The codec that batches are stored with; producer keeps what was sent.",
    "compression.zstd.level": "Level for zstd where the broker compresses itself.",
    "delete.retention.ms": (
        "How long a compacted topic keeps a tombstone, so that a reader that began before it still sees it."
    ),
    "file.delete.delay.ms": "How long a dropped segment's files stay on disk, renamed, before they are removed.",
    "flush.messages": (
        "Force the log to disk after this many records. Replication and the page cache usually serve better."
    ),
    "flush.ms": "Force the log to disk after this long.",
    "follower.replication.throttled.replicas": (
        "Replicas, as partition:broker or *, whose fetching is limited by follower.replication.throttled.rate."
    ),
    "index.interval.bytes": (
        "A new index entry is made after this many bytes of records; fewer bytes mean larger indexes and shorter scans."
    ),
    "internal.segment.bytes": "Segment size without a lower bound, for tests of rolling.",
    "leader.replication.throttled.replicas": (
        "Replicas, as partition:broker or *, whose serving is limited by leader.replication.throttled.rate."
    ),
    "local.retention.bytes": (
        "With tiered storage, the bytes of a partition that stay local; -2 follows retention.bytes."
    ),
    "local.retention.ms": "With tiered storage, the time that segments stay local; -2 follows retention.ms.",
    "max.compaction.lag.ms": "The longest time that a record may wait for compaction.",
    "max.message.bytes": "The largest batch that is taken, after compression.",
    "message.timestamp.after.max.ms": "How far a CreateTime may lie ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "How far a CreateTime may lie behind the broker's clock.",
    "message.timestamp.type": (
        "Whether records keep the time the producer gave (CreateTime) or get the broker's (LogAppendTime)."
    ),
    "min.cleanable.dirty.ratio": "Compaction starts when this share of the log has not been compacted yet.",
    "min.compaction.lag.ms": "The shortest time that a record stays as it is before compaction may touch it.",
    "min.insync.replicas": (
        "Replicas that must have a record before acks=all counts as done; with fewer in sync, such writes are refused."
    ),
    "preallocate": "Reserve the disk space of a segment when it is made.",
    "remote.log.copy.disable": "Stop copying segments to tiered storage, and keep what is there readable.",
    "remote.log.delete.on.disable": "Remove the remote copies when tiered storage is turned off for the topic.",
    "remote.storage.enable": "Use tiered storage for the topic.",
    "retention.bytes": "Drop the oldest segments of a partition beyond this many bytes; -1 sets no limit.",
    "retention.ms": "Drop segments whose newest record is older than this; -1 keeps them for ever.",
    "segment.bytes": "Start a new segment file when the active one would grow beyond this.",
    "segment.index.bytes": "The largest offset index; a full index starts a new segment.",
    "segment.jitter.ms": (
        "Up to this much is taken off segment.ms at random, so that partitions do not all roll at once."
    ),
    "segment.ms": (
        "Start a new segment after this long even if it is not full, so that retention and compaction can act."
    ),
    "unclean.leader.election.enable": (
        "Let a replica that is not in sync lead as a last resort, and lose what it has not got."
    ),
}

GROUP_DOCS = {
    "share.auto.offset.reset": (
        "Where a share group starts in a partition that is new to it: latest, earliest, or by_duration and how far "
        "back."
    ),
    "share.isolation.level": "Whether a share group sees records of open and aborted transactions.",
    "share.renew.acknowledge.enable": "Let members extend their lock on a record with a renew acknowledgement.",
}

CLIENT_METRICS_DOCS = {
    "interval.ms": "How often clients push metrics.",
    "match": "Which clients the subscription is for, as name=pattern pairs that must all match.",
    "metrics": "Prefixes of the metrics that clients send; * for all, empty for none.",
}

BROKER_DOCS = {
    # Cluster membership and the metadata log
    "broker.heartbeat.interval.ms": "How often a broker reports to the controller.",
    "broker.id": "Older name of node.id; both must agree.",
    "broker.rack": "Where the broker stands, for rack-aware placement and for reading from the nearest replica.",
    "broker.session.timeout.ms": "A broker whose heartbeats stay away this long counts as gone.",
    "controller.listener.names": "Listeners that controllers talk on. Ottla does not bind them.",
    "controller.performance.always.log.threshold.ms": "Controller operations slower than this are logged.",
    "controller.performance.sample.period.ms": "How often a summary of controller operations is logged.",
    "controller.quorum.append.linger.ms": "How long the metadata leader gathers records before it writes them.",
    "controller.quorum.auto.join.enable": "Let a controller add itself to the voters.",
    "controller.quorum.bootstrap.servers": "Controllers to ask for the state of the quorum, as host:port.",
    "controller.quorum.election.backoff.max.ms": "The longest wait before another election after a tie.",
    "controller.quorum.election.timeout.ms": "How long a candidate waits for votes.",
    "controller.quorum.fetch.max.bytes": "Bytes of the metadata log in one fetch.",
    "controller.quorum.fetch.snapshot.max.bytes": "Bytes of a metadata snapshot in one fetch.",
    "controller.quorum.fetch.timeout.ms": "Without a successful fetch for this long, a voter stands for election.",
    "controller.quorum.request.timeout.ms": "How long a controller waits for an answer.",
    "controller.quorum.retry.backoff.ms": "The pause before a controller repeats a request.",
    "controller.quorum.voters": "The fixed set of controllers, as id@host:port.",
    "controller.quota.window.num": "Windows kept for the quota on topic creation and deletion.",
    "controller.quota.window.size.seconds": "Length of one window of the quota on topic creation and deletion.",
    "controller.socket.timeout.ms": "Socket timeout between brokers and controllers.",
    "early.start.listeners": "Listeners that open before the broker has caught up with the metadata.",
    "initial.broker.registration.timeout.ms": "A broker that cannot register for this long at its start gives up.",
    "internal.metadata.delete.delay.millis": "How long dropped segments of the metadata log stay on disk.",
    "internal.metadata.log.segment.bytes": "Segment size of the metadata log without a lower bound, for tests.",
    "internal.metadata.max.batch.size.in.bytes": "The largest batch of metadata records.",
    "metadata.log.dir": "The folder of the metadata log; the first of log.dirs if it is not set.",
    "metadata.log.max.record.bytes.between.snapshots": "Write a snapshot after this many bytes of metadata records.",
    "metadata.log.max.snapshot.interval.ms": (
        "Write a snapshot at least this often if there is anything new; 0 never by time."
    ),
    "metadata.log.segment.bytes": "Segment size of the metadata log.",
    "metadata.log.segment.ms": "Start a new segment of the metadata log after this long.",
    "metadata.max.idle.interval.ms": "How often the controller writes a no-op record while nothing happens; 0 never.",
    "metadata.max.retention.bytes": "Drop old metadata segments and snapshots beyond this many bytes.",
    "metadata.max.retention.ms": "Drop metadata segments and snapshots that are older than this.",
    "node.id": "The number of this node in the cluster.",
    "process.roles": "What this process is: broker, controller, or both.",
    "server.max.startup.time.ms": "Give up a start that takes longer than this.",
    "unstable.api.versions.enable": "Serve versions of requests that are still in development.",
    "unstable.feature.versions.enable": "Allow feature levels that are still in development.",
    # Network and threads
    "advertised.listeners": "The addresses that the broker gives to clients, if they differ from listeners.",
    "background.threads": "Threads for background work in Kafka; Ottla has one event loop and keeps the number only.",
    "connections.max.idle.ms": "Close a connection that has been quiet for this long.",
    "inter.broker.listener.name": "The listener that brokers use among themselves.",
    "listener.security.protocol.map": "The security protocol of each listener name, as NAME:PROTOCOL pairs.",
    "listeners": (
        "The addresses to bind, as NAME://host:port; an empty host binds all interfaces, port 0 any free port."
    ),
    "max.connection.creation.rate": "New connections per second that the broker takes.",
    "max.connections": "Connections that the broker keeps; at the limit, a new one waits for an old one to close.",
    "max.connections.per.ip": "Connections from one address.",
    "max.connections.per.ip.overrides": "Limits for single addresses or host names, as host:count pairs.",
    "num.io.threads": "Request threads in Kafka; Ottla has one event loop and keeps the number only.",
    "num.network.threads": (
        "Network threads of a listener in Kafka; Ottla has one event loop and keeps the number only."
    ),
    "queued.max.request.bytes": "Bytes of waiting requests after which nothing more is read; -1 sets no limit.",
    "queued.max.requests": "Waiting requests after which nothing more is read.",
    "request.timeout.ms": "How long the broker waits for an answer to a request of its own.",
    "socket.connection.setup.timeout.max.ms": "The longest wait for a connection, after growing with each failure.",
    "socket.connection.setup.timeout.ms": "How long the broker waits for a connection that it opens.",
    "socket.listen.backlog.size": "Connections that the system may hold before they are accepted.",
    "socket.receive.buffer.bytes": "SO_RCVBUF of server sockets; -1 leaves the system's value.",
    "socket.request.max.bytes": "The largest request that is read. A 512th of it is how many elements (topics, "
    "groups, …) one request may list.",
    "socket.send.buffer.bytes": "SO_SNDBUF of server sockets; -1 leaves the system's value.",
    # Logs
    "cordoned.log.dirs": "Log folders that get no new partitions; * for all.",
    "log.dir": "The log folder, if log.dirs is not set.",
    "log.dir.failure.timeout.ms": (
        "How long a broker with a failed folder waits to tell the controller before it stops."
    ),
    "log.dirs": "The folders that hold the partitions.",
    "log.flush.offset.checkpoint.interval.ms": "How often the recovery points are written down.",
    "log.flush.scheduler.interval.ms": "How often logs are looked at for records to force to disk.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often the log start offsets are written down.",
    "log.initial.task.delay.ms": "The pause after a start before retention and checkpoints begin.",
    "log.retention.check.interval.ms": "How often logs are looked at for segments to drop.",
    "log.retention.hours": (
        "Drop segments that are older than this many hours; log.retention.minutes and log.retention.ms go first."
    ),
    "log.retention.minutes": "Drop segments that are older than this many minutes; log.retention.ms goes first.",
    "log.roll.hours": "Start a new segment after this many hours; log.roll.ms goes first.",
    "log.roll.jitter.hours": "Take up to this many hours off log.roll.hours at random; log.roll.jitter.ms goes first.",
    "num.recovery.threads.per.data.dir": "Threads for loading and flushing each log folder in Kafka.",
    # Compaction
    "log.cleaner.backoff.ms": "How long the cleaner sleeps when there is nothing to compact.",
    "log.cleaner.dedupe.buffer.size": "Memory for the map of keys of all cleaner threads.",
    "log.cleaner.enable": "Run the log cleaner, which compacted topics need.",
    "log.cleaner.io.buffer.load.factor": (
        "How full the map of keys may get; fuller maps hold more keys and collide more."
    ),
    "log.cleaner.io.buffer.size": "Memory for reading and writing of all cleaner threads.",
    "log.cleaner.io.max.bytes.per.second": "The cleaner reads and writes no more than this on average.",
    "log.cleaner.threads": "Threads that compact logs.",
    # Topics and messages
    "alter.config.policy.class.name": "A JVM class that judges config changes; Ottla cannot run it.",
    "auto.create.topics.enable": "Make a topic when a client first asks about it.",
    "create.topic.policy.class.name": "A JVM class that judges new topics; Ottla cannot run it.",
    "default.replication.factor": "Replicas of topics that are made automatically or without a number.",
    "delete.topic.enable": "Let clients delete topics.",
    "max.request.partition.size.limit": "Partitions that one DescribeTopicPartitions answer may hold.",
    "num.partitions": "Partitions of topics that are made automatically or without a number.",
    "unclean.leader.election.interval.ms": "How often leaderless partitions are looked at for an unclean election.",
    # Replication and leadership
    "auto.leader.rebalance.enable": "Give leadership back to preferred replicas from time to time.",
    "controlled.shutdown.enable": "Hand leadership over before stopping.",
    "leader.imbalance.check.interval.seconds": "How often preferred leadership is checked.",
    "num.replica.alter.log.dirs.threads": "Threads that move replicas between log folders.",
    "num.replica.fetchers": "Fetchers that a follower runs for each leader.",
    "replica.fetch.backoff.ms": "The pause after a failed fetch of a partition.",
    "replica.fetch.max.bytes": "Bytes of one partition in a follower's fetch.",
    "replica.fetch.min.bytes": "Bytes that a follower's fetch waits for.",
    "replica.fetch.response.max.bytes": "Bytes of all partitions in a follower's fetch.",
    "replica.fetch.wait.max.ms": "How long a follower's fetch may wait; less than replica.lag.time.max.ms.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written down.",
    "replica.lag.time.max.ms": "A follower that has not caught up for this long leaves the in-sync replicas.",
    "replica.selector.class": (
        "Picks the replica that a consumer reads from; the rack-aware one is known by its Kafka name."
    ),
    "replica.socket.receive.buffer.bytes": "SO_RCVBUF of a follower's connection.",
    "replica.socket.timeout.ms": "Socket timeout of a follower's connection.",
    "follower.replication.throttled.rate": "Bytes per second that throttled followers may fetch.",
    "leader.replication.throttled.rate": "Bytes per second that leaders may send to throttled replicas.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes per second for moving replicas between log folders.",
    # Quotas
    "alter.log.dirs.replication.quota.window.num": "Windows kept for the quota on moves between log folders.",
    "alter.log.dirs.replication.quota.window.size.seconds": (
        "Length of one window of the quota on moves between log folders."
    ),
    "client.quota.callback.class": "A JVM class that computes client quotas; Ottla cannot run it.",
    "quota.window.num": "Windows kept for client quotas.",
    "quota.window.size.seconds": "Length of one window of client quotas.",
    "replication.quota.window.num": "Windows kept for replication quotas.",
    "replication.quota.window.size.seconds": "Length of one window of replication quotas.",
    # Fetch, purgatories, metrics and plugins
    "config.providers": "Names of JVM classes that fill in settings; Ottla cannot run them.",
    "delete.records.purgatory.purge.interval.requests": (
        "Waiting DeleteRecords requests after which finished ones are cleared away."
    ),
    "fetch.max.bytes": "Bytes of one fetch response.",
    "fetch.purgatory.purge.interval.requests": "Waiting fetches after which finished ones are cleared away.",
    "kafka.metrics.polling.interval.secs": "How often Kafka's own metrics reporters are polled.",
    "kafka.metrics.reporters": "JVM classes that report Kafka's older metrics; Ottla cannot run them.",
    "max.incremental.fetch.session.cache.slots": "Fetch sessions that are kept.",
    "metric.reporters": "JVM classes that report metrics; Ottla cannot run them.",
    "metrics.num.samples": "Samples that a metric is computed from.",
    "metrics.recording.level": "How much is measured: INFO, DEBUG or TRACE.",
    "metrics.sample.window.ms": "Length of one sample of a metric.",
    "producer.purgatory.purge.interval.requests": (
        "Waiting produce requests after which finished ones are cleared away."
    ),
    "telemetry.max.bytes": "The largest push of client metrics, after compression.",
    # Group coordinator and classic groups
    "group.coordinator.append.linger.ms": (
        "How long coordinator records are gathered for one write; -1 adapts to the load."
    ),
    "group.coordinator.background.threads": (
        "Threads for regular expressions and assignments in Kafka's group coordinator."
    ),
    "group.coordinator.cached.buffer.max.bytes": (
        "Buffers up to this size are kept for the next write of the group coordinator."
    ),
    "group.coordinator.rebalance.protocols": "Kinds of groups that are served; classic cannot be left out.",
    "group.coordinator.threads": "Threads of Kafka's group coordinator.",
    "group.initial.rebalance.delay.ms": (
        "How long the first rebalance of an empty classic group waits for more members."
    ),
    "group.max.session.timeout.ms": "The longest session timeout that a classic member may ask for.",
    "group.max.size": "Members of a classic group.",
    "group.min.session.timeout.ms": "The shortest session timeout that a classic member may ask for.",
    "offset.metadata.max.bytes": "Bytes of the note that can be committed with an offset.",
    "offsets.commit.timeout.ms": "How long a commit waits for the offsets topic's replicas.",
    "offsets.load.buffer.size": "Bytes read at a time when offsets are loaded.",
    "offsets.retention.check.interval.ms": "How often offsets are looked at for ones to drop.",
    "offsets.retention.minutes": (
        "Offsets are dropped this long after a group has become empty, or after the commit without a group."
    ),
    "offsets.topic.compression.codec": "Codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    "offsets.topic.num.partitions": "Partitions of the offsets topic; not to be changed once it exists.",
    "offsets.topic.replication.factor": "Replicas of the offsets topic.",
    "offsets.topic.segment.bytes": "Segment size of the offsets topic; small ones load and compact faster.",
    # Consumer groups (KIP-848)
    "group.consumer.assignment.interval.ms": "The shortest time between two assignments of a consumer group.",
    "group.consumer.assignors": "Assignors of consumer groups; the first one is used where members name none.",
    "group.consumer.heartbeat.interval.ms": "How often members of a consumer group send heartbeats.",
    "group.consumer.max.assignment.interval.ms": "The largest consumer.assignment.interval.ms that a group may set.",
    "group.consumer.max.heartbeat.interval.ms": "The largest consumer.heartbeat.interval.ms that a group may set.",
    "group.consumer.max.session.timeout.ms": "The largest consumer.session.timeout.ms that a group may set.",
    "group.consumer.max.size": "Members of a consumer group.",
    "group.consumer.migration.policy": (
        "Whether groups change between classic and consumer protocol as members do: UPGRADE, DOWNGRADE, "
        "BIDIRECTIONAL or DISABLED."
    ),
    "group.consumer.min.assignment.interval.ms": "The smallest consumer.assignment.interval.ms that a group may set.",
    "group.consumer.min.heartbeat.interval.ms": "The smallest consumer.heartbeat.interval.ms that a group may set.",
    "group.consumer.min.session.timeout.ms": "The smallest consumer.session.timeout.ms that a group may set.",
    "group.consumer.regex.refresh.interval.ms": "How often subscriptions by regular expression are resolved again.",
    "group.consumer.session.timeout.ms": "A member of a consumer group that is silent for this long is removed.",
    # Share groups and their coordinator
    "group.share.assignment.interval.ms": "The shortest time between two assignments of a share group.",
    "group.share.assignors": "Assignors of share groups; the first one is used.",
    "group.share.delivery.count.limit": "How often a record is delivered before it counts as undeliverable.",
    "group.share.heartbeat.interval.ms": "How often members of a share group send heartbeats.",
    "group.share.initialize.retry.interval.ms": (
        "The pause before the state of a share partition is initialized once more."
    ),
    "group.share.max.assignment.interval.ms": "The largest share.assignment.interval.ms that a group may set.",
    "group.share.max.delivery.count.limit": "The largest share.delivery.count.limit that a group may set.",
    "group.share.max.heartbeat.interval.ms": "The largest share.heartbeat.interval.ms that a group may set.",
    "group.share.max.partition.max.record.locks": "The largest share.partition.max.record.locks that a group may set.",
    "group.share.max.record.lock.duration.ms": "The largest share.record.lock.duration.ms that a group may set.",
    "group.share.max.session.timeout.ms": "The largest share.session.timeout.ms that a group may set.",
    "group.share.max.share.sessions": "Share sessions that a broker keeps.",
    "group.share.max.size": "Members of a share group.",
    "group.share.min.assignment.interval.ms": "The smallest share.assignment.interval.ms that a group may set.",
    "group.share.min.delivery.count.limit": "The smallest share.delivery.count.limit that a group may set.",
    "group.share.min.heartbeat.interval.ms": "The smallest share.heartbeat.interval.ms that a group may set.",
    "group.share.min.partition.max.record.locks": "The smallest share.partition.max.record.locks that a group may set.",
    "group.share.min.record.lock.duration.ms": "The smallest share.record.lock.duration.ms that a group may set.",
    "group.share.min.session.timeout.ms": "The smallest share.session.timeout.ms that a group may set.",
    "group.share.partition.max.record.locks": "Records of a partition that can be out for delivery at once.",
    "group.share.persister.class.name": "What keeps the state of share groups; Ottla has its own.",
    "group.share.record.lock.duration.ms": "How long a member has for a record before it is given to another.",
    "group.share.session.timeout.ms": "A member of a share group that is silent for this long is removed.",
    "share.coordinator.append.linger.ms": "How long share state is gathered for one write; -1 adapts to the load.",
    "share.coordinator.cached.buffer.max.bytes": (
        "Buffers up to this size are kept for the next write of the share coordinator."
    ),
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "How often quiet share partitions are written as a snapshot."
    ),
    "share.coordinator.load.buffer.size": "Bytes read at a time when share state is loaded.",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "Updates that are written between two snapshots of a share partition."
    ),
    "share.coordinator.state.topic.compression.codec": (
        "Codec of the share state topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."
    ),
    "share.coordinator.state.topic.min.isr": "min.insync.replicas of the share state topic.",
    "share.coordinator.state.topic.num.partitions": (
        "Partitions of the share state topic; not to be changed once it exists."
    ),
    "share.coordinator.state.topic.prune.interval.ms": "How often share state that a snapshot has replaced is deleted.",
    "share.coordinator.state.topic.replication.factor": "Replicas of the share state topic.",
    "share.coordinator.state.topic.segment.bytes": "Segment size of the share state topic.",
    "share.coordinator.threads": "Threads of Kafka's share coordinator.",
    "share.coordinator.write.timeout.ms": "How long a write of share state waits for replicas.",
    "share.fetch.purgatory.purge.interval.requests": (
        "Waiting share fetches after which finished ones are cleared away."
    ),
    # Streams groups
    "group.streams.assignment.interval.ms": "The shortest time between two assignments of a streams group.",
    "group.streams.heartbeat.interval.ms": "How often members of a streams group send heartbeats.",
    "group.streams.initial.rebalance.delay.ms": (
        "How long the first assignment of an empty streams group waits for more members."
    ),
    "group.streams.max.assignment.interval.ms": "The largest streams.assignment.interval.ms that a group may set.",
    "group.streams.max.heartbeat.interval.ms": "The largest streams.heartbeat.interval.ms that a group may set.",
    "group.streams.max.session.timeout.ms": "The largest streams.session.timeout.ms that a group may set.",
    "group.streams.max.size": "Members of a streams group.",
    "group.streams.max.standby.replicas": "The largest streams.num.standby.replicas that a group may set.",
    "group.streams.min.assignment.interval.ms": "The smallest streams.assignment.interval.ms that a group may set.",
    "group.streams.min.heartbeat.interval.ms": "The smallest streams.heartbeat.interval.ms that a group may set.",
    "group.streams.min.session.timeout.ms": "The smallest streams.session.timeout.ms that a group may set.",
    "group.streams.num.standby.replicas": "Standby copies of each task of a streams group.",
    "group.streams.session.timeout.ms": "A member of a streams group that is silent for this long is removed.",
    # Transactions and idempotent producers
    "add.partitions.to.txn.retry.backoff.max.ms": (
        "The longest time that adding a partition to a transaction is retried inside the broker."
    ),
    "add.partitions.to.txn.retry.backoff.ms": "The pause between two such retries.",
    "producer.id.expiration.check.interval.ms": "How often producers are looked at for ones to forget.",
    "producer.id.expiration.ms": "The sequence numbers of a producer are forgotten this long after its last write.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "How often open transactions are looked at for ones that have timed out."
    ),
    "transaction.max.timeout.ms": "The longest timeout that a transactional producer may ask for.",
    "transaction.partition.verification.enable": (
        "Check that a partition is part of the transaction before records of it are written."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "How often transactional ids are looked at for ones to forget."
    ),
    "transaction.state.log.load.buffer.size": "Bytes read at a time when transactions are loaded.",
    "transaction.state.log.min.isr": "min.insync.replicas of the transaction log.",
    "transaction.state.log.num.partitions": "Partitions of the transaction log; not to be changed once it exists.",
    "transaction.state.log.replication.factor": "Replicas of the transaction log.",
    "transaction.state.log.segment.bytes": "Segment size of the transaction log; small ones load and compact faster.",
    "transaction.two.phase.commit.enable": (
        "Let producers take part in two-phase commits of other systems, whose transactions never time out."
    ),
    "transactional.id.expiration.ms": "A transactional id is forgotten this long after its last transaction.",
}
