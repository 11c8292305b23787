"""Client quotas: produced and fetched bytes, time on the broker, and changes to topics, by user and client id.

The most specific quota counts: user and client id, user with the default of client ids, user, default user with the
client id, default of both, default user, client id, default client id. A quota for a user only is shared by the
user's clients; one for a client id only is shared by all users of it. The answer to a client above its quota has
`throttle_time_ms`, and nothing is read from the client for that time (KIP-219).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.enums import QuotaType
from ottla.errors import ThrottlingQuotaExceeded
from ottla.metadata.image import MetadataImage
from ottla.metadata.quotas import CLIENT_ID, USER
from ottla.server.security.lru import LruCache
from ottla.server.security.rates import TokenBucket, WindowedRate
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config import Config
    from ottla.server.api import RequestContext
    from ottla.server.requester import Requester

PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
TIME, MUTATIONS = "request_percentage", "controller_mutation_rate"

_NS_TO_PERCENT = 100 / 1e9

METERS_MAX = 10_000
METER_CHARACTERS_MAX = 4 << 20
"""Clients choose their ids, so the number of meters and cached quotas is limited, and the characters in their names.
Kafka removes a meter after an hour without use, without a limit on their number."""

Meter = tuple[float | None, tuple[str, str, str]]


class Quotas:
    """The quotas of a broker. It exists only while there are any, so requests cost nothing without them."""

    def __init__(self, image: MetadataImage, config: Config, clock: Clock) -> None:
        self._image = image
        self._clock = clock
        self._window_ms = config["quota.window.size.seconds"] * 1000
        self._windows = config["quota.window.num"]
        self._burst_s = config["controller.quota.window.size.seconds"] * config["controller.quota.window.num"]
        self._rates: LruCache[WindowedRate] = LruCache(METERS_MAX, METER_CHARACTERS_MAX)
        self._buckets: LruCache[TokenBucket] = LruCache(METERS_MAX, METER_CHARACTERS_MAX)
        self._found: LruCache[Meter] = LruCache(METERS_MAX, METER_CHARACTERS_MAX)

    @classmethod
    def followed(cls, known: Quotas | None, image: MetadataImage, config: Config, clock: Clock) -> Quotas | None:
        """The quotas after a metadata change; None if there are none."""
        if not cls.wanted(image):
            return None
        if known is None:
            return cls(image, config, clock)
        known.reload()
        return known

    @staticmethod
    def wanted(image: MetadataImage) -> bool:
        """Whether there is any quota for users or client ids."""
        return any(kind in (USER, CLIENT_ID) for entity in image.quotas for kind, _ in entity)

    @staticmethod
    def changed(records: Sequence[Message]) -> bool:
        return any(isinstance(record, stored.ClientQuotaRecord) for record in records)

    def reload(self) -> None:
        """Quotas changed: look them up again; measured rates are kept."""
        self._found.clear()

    # -- look-ups ------------------------------------------------------------------------------------------------

    def _meter(self, key: str, connection: Requester, client_id: str | None) -> Meter:
        user = connection.principal.partition(":")[2]
        asked = (key, user, client_id or "")
        found = self._found.get(asked)
        return found if found is not None else self._found.put(asked, self._look_up(*asked))

    def _look_up(self, key: str, user: str, client_id: str) -> Meter:
        quotas = self._image.quotas
        for entity, tags in (
            (((CLIENT_ID, client_id), (USER, user)), (user, client_id)),
            (((CLIENT_ID, None), (USER, user)), (user, client_id)),
            (((USER, user),), (user, "")),
            (((CLIENT_ID, client_id), (USER, None)), (user, client_id)),
            (((CLIENT_ID, None), (USER, None)), (user, client_id)),
            (((USER, None),), (user, "")),
            (((CLIENT_ID, client_id),), ("", client_id)),
            (((CLIENT_ID, None),), ("", client_id)),
        ):
            limit = quotas.get(entity, {}).get(key)
            if limit is not None:
                return limit, (key, *tags)
        return None, (key, "", "")

    def _rate(self, key: tuple[str, str, str]) -> WindowedRate:
        rate = self._rates.get(key)
        return rate if rate is not None else self._rates.put(key, WindowedRate(self._window_ms, self._windows))

    def _record(self, key: str, ctx: RequestContext, value: float) -> int:
        """Count `value`, and return how long to wait."""
        limit, meter = self._meter(key, ctx.connection, ctx.client_id)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(meter)
        rate.record(value, now_ms)
        return rate.excess_ms(limit, now_ms)

    def _record_time(self, ctx: RequestContext) -> int:
        # A pause for request time is never longer than a window, which is the precision of the rate.
        return int(min(self._record(TIME, ctx, ctx.connection.work_ns() * _NS_TO_PERCENT), self._window_ms))

    # -- requests ------------------------------------------------------------------------------------------------

    def settle(self, ctx: RequestContext, response: Any) -> int:
        """Called before an answer is sent (None if there is none): count the request, and set the throttle
        time in the answer. Returns the time in milliseconds."""
        quota = ctx.services.registry.apis[ctx.api_key].quota
        if quota is QuotaType.FETCH:
            throttle_ms = response.throttle_time_ms  # counted when the answer was made
        else:
            throttle_ms = self._record_time(ctx)
            if quota is QuotaType.PRODUCE:
                throttle_ms = max(throttle_ms, self._record(PRODUCED, ctx, ctx.request_bytes))
            if response is not None and hasattr(response, "throttle_time_ms"):
                throttle_ms = response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)
        return int(throttle_ms)

    def fetch_throttle_ms(self, ctx: RequestContext, response_bytes: int) -> int:
        """How long a fetch must wait; an answer that is not sent is not counted."""
        time_ms = self._record_time(ctx)
        limit, meter = self._meter(FETCHED, ctx.connection, ctx.client_id)
        if limit is None:
            return time_ms
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(meter)
        rate.record(response_bytes, now_ms)
        throttle_ms = max(time_ms, rate.excess_ms(limit, now_ms))
        if throttle_ms > 0:
            rate.record(-response_bytes, now_ms)
        return throttle_ms

    def share_fetch_throttle_ms(self, ctx: RequestContext, response_bytes: int) -> int:
        """Like a fetch, but the answer is sent, because the member has already acquired the records. Kafka does not
        send it, and nobody gets the records until their locks expire."""
        return self._record(FETCHED, ctx, response_bytes)

    def fetch_bytes_max(self, ctx: RequestContext) -> int:
        """The most bytes that one fetch may read: as many as the quota allows in all windows except one."""
        limit, _ = self._meter(FETCHED, ctx.connection, ctx.client_id)
        return 1 << 31 if limit is None else int(limit * (self._windows - 1) * self._window_ms / 1000)

    def mutations(self, ctx: RequestContext, *, strict: bool) -> Mutations | None:
        """The quota for changes to topics; a strict one refuses requests above it, the other only counts them."""
        limit, meter = self._meter(MUTATIONS, ctx.connection, ctx.client_id)
        if limit is None:
            return None
        bucket = self._buckets.get(meter)
        if bucket is None:
            bucket = self._buckets.put(meter, TokenBucket())
        return Mutations(bucket, limit, limit * self._burst_s, strict, self._clock)


class Mutations:
    """One request's view of its quota for changes: `admit` partitions one topic at a time."""

    __slots__ = ("_bucket", "_burst", "_clock", "_rate", "_strict", "throttle_ms")

    def __init__(self, bucket: TokenBucket, rate: float, burst: float, strict: bool, clock: Clock) -> None:
        self._bucket = bucket
        self._rate = rate
        self._burst = burst
        self._strict = strict
        self._clock = clock
        self.throttle_ms = 0

    def admit(self, partitions: int) -> None:
        now_ms = self._clock.monotonic_ms()
        debt_ms = self._bucket.debt_ms(self._rate, self._burst, now_ms)
        if self._strict and debt_ms > 0:
            self.throttle_ms = debt_ms
            raise ThrottlingQuotaExceeded()
        self._bucket.take(partitions)
        if not self._strict:
            self.throttle_ms = max(self.throttle_ms, self._bucket.debt_ms(self._rate, self._burst, now_ms))
