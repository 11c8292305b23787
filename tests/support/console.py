"""A console for a broker, and a client of its JSON API."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen


class HttpServer(Protocol):
    """The console, or the schema registry."""

    @property
    def url(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Answer(NamedTuple):
    status: int
    data: Any
    headers: dict[str, str]


class Console:
    """A client of the JSON API."""

    def __init__(self, url: str, broker: Any = None) -> None:
        self.url = url
        self.broker = broker

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        """`from_` in the query stands for `from`, which is a Python keyword."""
        text = "&".join(f"{name.rstrip('_')}={quote(str(value), safe='')}" for name, value in query.items())
        request = Request(
            f"{self.url}/api/v1{path}" + (f"?{text}" if text else ""),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers or {},
        )
        try:
            with urlopen(request, timeout=30) as response:
                return Answer(response.status, json.load(response), dict(response.headers))
        except HTTPError as error:
            with error:
                return Answer(error.code, json.load(error), dict(error.headers))

    def get(self, path: str, **query: Any) -> Any:
        answer = self.ask("GET", path, **query)
        assert answer.status == 200, answer
        return answer.data


@contextmanager
def served(make: Callable[[], HttpServer]) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    console = make()
    try:
        run(console.start())
        yield console.url
        run(console.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
