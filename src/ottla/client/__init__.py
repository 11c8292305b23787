"""A small asyncio client for any Kafka cluster: what the commands of `ottla` stand on.

`Client` finds brokers, leaders and coordinators and retries what can be retried; `admin`, `offsets`, `producer` and
`fetcher` are the verbs. It knows the wire and the records, and nothing of the broker that lives next door.
"""

from ottla.client.connection import ClientError, ConnectionLost
from ottla.client.routing import Client
from ottla.client.security import Security

__all__ = ["Client", "ClientError", "ConnectionLost", "Security"]
