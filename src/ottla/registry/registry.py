"""A registry on a log: it replays what is there, and then serves one request after the other."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace

from . import errors, names
from .catalog import Catalog
from .errors import RegistryError
from .log import SchemaLog
from .operations import Outcome
from .records import CorruptRecord, Record, SchemaPut, StoredRecord, read_record
from .rest.http import Answer, Call, Info, Request, answer_type, check_content_type
from .rest.routes import Match, Route, match
from .state import State

logger = logging.getLogger(__name__)

# A body beyond this is refused unread. The largest schema that can be stored is much smaller.
MAX_BODY_BYTES = 8 * 1024 * 1024


class Registry:
    """Give it a log, `start` it, and let an HTTP library call `handle`."""

    def __init__(self, log: SchemaLog, info: Info | None = None) -> None:
        self.log = log
        self.info = info or Info()
        self.state = State()
        self.catalog = Catalog(self.state)
        # Offsets of records that were skipped, and why.
        self.skipped: list[tuple[int, str]] = []
        # One write at a time: it reads state, and nobody else may write before its records are replayed.
        self._writing = asyncio.Lock()
        # A write failed, and may be in the log all the same.
        self._uncertain = False

    async def start(self) -> None:
        """Replay the log. A record that says nothing is reported and skipped."""
        await self.catch_up()

    async def catch_up(self) -> None:
        """Replay what the log has and the state does not, also if another registry wrote it."""
        self._replay(await self.log.read(self.state.next_offset))
        self._uncertain = False

    def _replay(self, records: Sequence[StoredRecord]) -> None:
        for record in records:
            try:
                self.state.replay(record)
            except CorruptRecord as error:
                self.skipped.append((record.offset, str(error)))
                logger.warning("registry: skipped the record at offset %d: %s", record.offset, error)
            else:
                if not record.value:
                    self.catalog.forget_parsed()

    async def handle(self, request: Request) -> Answer:
        """Answer a request; an error is an answer too."""
        media_type = answer_type(request.accept)
        try:
            found = match(request)
            call = self._call(request, found)
            outcome = await self._write(found.route, call) if found.route.writes else found.route.handler(call)
            body = None if found.route.status == 204 else outcome.answer
            return Answer(found.route.status, body, media_type, found.route.raw)
        except RegistryError as error:
            return Answer(error.status, {"error_code": error.code, "message": error.message}, media_type)
        except Exception:
            # Clients cannot read anything but an object with these two fields.
            logger.exception("registry: %s %s failed", request.method, request.path)
            return Answer(500, {"error_code": 500, "message": "Internal Server Error"}, media_type)

    def _call(self, request: Request, found: Match) -> Call:
        body = None
        if request.method in ("POST", "PUT") and request.path.strip("/"):
            if len(request.body) > MAX_BODY_BYTES:
                raise RegistryError(413, 413, f"The request body is larger than {MAX_BODY_BYTES} bytes")
            check_content_type(request.content_type)
            body = _json(request.body)
        return Call(self.catalog, self.info, found.params, replace(request, query=found.query), body)

    async def _write(self, route: Route, call: Call) -> Outcome[object]:
        async with self._writing:
            if self._uncertain:
                await self._catch_up_or_fail()
            outcome = route.handler(call)
            if outcome.records:
                await self._append(outcome.records)
            return outcome

    async def _append(self, records: list[Record]) -> None:
        try:
            self._replay(await self.log.append(records))
        except (OSError, asyncio.CancelledError) as error:
            # The ids may be in the log. They are not given again, and the next write looks first.
            self._uncertain = True
            for record in records:
                event = read_record(StoredRecord(-1, 0, *record))
                if isinstance(event, SchemaPut):
                    self.state.skip_ids(names.context_of(event.entry.subject), event.entry.id)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise errors.store_failed(f"The write to the schema log failed: {error}") from error

    async def _catch_up_or_fail(self) -> None:
        try:
            await self.catch_up()
        except OSError as error:
            raise errors.store_failed(f"The schema log cannot be read: {error}") from error


def _json(body: bytes) -> object:
    if not body:
        raise RegistryError(422, 422, "The request has no body")
    try:
        value = json.loads(body)
        if b"\\ud" in body.lower():
            # Half a character can be written in JSON, and in nothing else.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise errors.bad_request(f"The request body is not JSON: {error}") from error
