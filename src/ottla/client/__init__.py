"""A small asyncio client for any Kafka cluster. The commands of `ottla` use it.

`Client` finds brokers, leaders and coordinators, and retries retriable errors; `admin`, `offsets`, `producer` and
`fetcher` contain the operations. It depends on the wire and record formats, but not on Ottla's broker.
"""

from ottla.client.connection import ClientError, ConnectionLost
from ottla.client.routing import Client
from ottla.client.security import Security

__all__ = ["Client", "ClientError", "ConnectionLost", "Security"]
