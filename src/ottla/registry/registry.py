"""A registry on a log: it replays the log, and then serves requests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from . import errors, names
from .catalog import Catalog
from .entities import AVRO
from .errors import RegistryError
from .log import SchemaLog
from .operations import Outcome
from .operations.delete import purge
from .records import CorruptRecord, Record, SchemaPut, StoredRecord, read_record
from .rest.http import V1, Answer, Call, Info, Request, answer_type, check_content_type
from .rest.routes import Match, Route, match
from .rights import Rights
from .state import State

logger = logging.getLogger(__name__)

# A larger body is refused without parsing it. The largest schema that can be stored is much smaller.
MAX_BODY_BYTES = 8 * 1024 * 1024
# An Avro schema up to this size is parsed and compared in a few milliseconds.
LIGHT_BYTES = 8 * 1024


class Registry:
    """Create it with a log, call `start`, and let an HTTP library call `handle`."""

    def __init__(self, log: SchemaLog, info: Info | None = None, rights: Rights | None = None) -> None:
        """`rights` limits requests of a principal. Requests without one come from this process and are not limited."""
        self.log = log
        self._rights = rights
        self.info = info or Info()
        self.state = State()
        self.catalog = Catalog(self.state)
        # Offsets of skipped records, and why they were skipped.
        self.skipped: list[tuple[int, str]] = []
        # One write at a time: a write reads the state, and the next one must see its records replayed.
        self._writing = asyncio.Lock()
        # A write failed, but its records may still be in the log.
        self._uncertain = False

    async def start(self) -> None:
        """Replay the log. Unreadable records are reported and skipped."""
        await self.catch_up()

    async def catch_up(self) -> None:
        """Replay the records that the state does not have yet, including those of other registries."""
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
        """Answer a request. Errors become answers too."""
        accepted = answer_type(request.accept)
        media_type = accepted or V1
        try:
            found = match(request)
            if accepted is None:
                raise RegistryError(406, 406, "HTTP 406 Not Acceptable")
            call = self._call(request, found)
            user = request.principal
            if self._rights is not None and user is not None:
                self._rights.check(user, found, call)
            if found.route.writes:
                outcome = await self._write(found.route, call)
            elif _is_heavy(request, call):
                async with self._writing:  # the state must not change while a thread reads it
                    outcome = await asyncio.to_thread(found.route.handler, call)
            else:
                outcome = found.route.handler(call)
            body = None if found.route.status == 204 else outcome.answer
            if self._rights is not None and user is not None:
                body = self._rights.visible(user, found, call, body)
            return Answer(found.route.status, body, media_type, found.route.raw)
        except RegistryError as error:
            return Answer(error.status, {"error_code": error.code, "message": error.message}, media_type)
        except ModuleNotFoundError as error:
            message = f"This needs the Python package {error.name}: pip install 'ottla[registry]'"
            logger.error("registry: %s", message)
            return Answer(500, {"error_code": 500, "message": message}, media_type)
        except Exception:
            # Clients can only parse an object with these two fields.
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
            heavy = _is_heavy(call.request, call)
            outcome = await asyncio.to_thread(route.handler, call) if heavy else route.handler(call)
            if outcome.records:
                await self._append(outcome.records)
            return outcome

    async def purge(self, subjects: Iterable[str]) -> None:
        """Remove subjects and their settings without a trace, even if other schemas refer to them."""
        async with self._writing:
            records = purge(self.state, subjects)
            if records:
                await self._append(records)

    async def _append(self, records: list[Record]) -> None:
        try:
            self._replay(await self.log.append(records))
        except (OSError, asyncio.CancelledError) as error:
            # The ids may be in the log. They are not assigned again, and the next write reads the log first.
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


def _is_heavy(request: Request, call: Call) -> bool:
    """Whether parsing and comparing the schema may take long. The broker must be able to serve clients meanwhile."""
    if "schema" not in (call.body if isinstance(call.body, dict) else ()):
        return False
    return len(request.body) > LIGHT_BYTES or call.body.get("schemaType") not in (None, AVRO)


def _json(body: bytes) -> object:
    if body.strip() in (b"", b"null"):
        raise RegistryError(422, 422, "The request has no body")
    try:
        value = json.loads(body)
        if b"\\ud" in body.lower():
            # JSON can contain half of a surrogate pair; UTF-8 cannot.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise errors.bad_request(f"The request body is not JSON: {error}") from error
