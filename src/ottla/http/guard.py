"""Restricts access to an HTTP address to programs and pages of this machine, or to clients that know the token.

A web page of another site can make a browser send requests to this machine. Such a request has the other site in its
`Origin`, or (with DNS rebinding) a foreign name in its `Host`: both are refused.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.http.endpoint import App
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from starlette import requests as starlette_requests
    from starlette import responses as starlette_responses
else:
    starlette_requests = lazy("starlette.requests")
    starlette_responses = lazy("starlette.responses")

LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})

_COOKIE: Final = "ottla_token"


class Guard:
    """Decides about each request. Without a token only this machine is served."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token

    def refusal(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
        """Why a request is refused; None if it is accepted."""
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is not None and re.sub(r"^https?://", "", origin) != host:
            return f"the page at {origin} may not use this address"
        if self._token is not None:
            given = _given_token(headers, query)
            if given is None or not hmac.compare_digest(given.encode(), self._token.encode()):
                return "a token is needed: add ?token=… to the address"
            return None
        if re.sub(r":\d*$", "", host) not in LOCAL_NAMES:
            return f"only this machine is served, under its own name, not as {host!r}; set a token to serve others"
        return None

    def cookie(self, query: Mapping[str, str]) -> str | None:
        """The cookie that keeps a token for the requests that a page makes after its first."""
        if self._token is None or "token" not in query:
            return None
        return f"{_COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"

    def wrap(self, app: App) -> App:
        """The application, protected by this guard."""

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            request = starlette_requests.Request(scope, receive)
            query = dict(request.query_params)
            refusal = self.refusal(dict(request.headers), query)
            if refusal is not None:
                await starlette_responses.JSONResponse({"error": refusal}, 403)(scope, receive, send)
                return
            cookie = self.cookie(query)

            async def send_with_cookie(message: Any) -> None:
                if cookie is not None and message["type"] == "http.response.start":
                    message["headers"] = [*message.get("headers", ()), (b"set-cookie", cookie.encode())]
                await send(message)

            await app(scope, receive, send_with_cookie)

        return guarded


def _given_token(headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
    if "token" in query:
        return query["token"]
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == _COOKIE:
            return value
    return None
