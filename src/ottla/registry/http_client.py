"""Sends requests to a registry over HTTP, with basic authentication, a bearer token, and TLS."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from .errors import RegistryError

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 60.0


class RegistryUnreachable(OSError):
    """No registry answers; the message contains the address."""


class HttpRegistry:
    """One connection, kept open. `user` is name:password; the URL may contain it instead."""

    def __init__(
        self, url: str, *, user: str | None = None, token: str | None = None, ca_file: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a registry, such as http://127.0.0.1:8081")
        self.url = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "") + parts.path
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": _MEDIA_TYPE}
        if user is None and parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port or 443, timeout=_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any) -> Any:
        """The answer to a request. Raises RegistryError for an error answer, RegistryUnreachable if there is none."""
        status, answer = self.answer(method, path, body)
        if status >= 400:
            raise RegistryError(status, answer["error_code"], answer["message"])
        return answer

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The status and the body; the body of an error has an error_code and a message."""
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = dict(self._headers) if data is None else {**self._headers, "Content-Type": _MEDIA_TYPE}
        status, content = self._send(method, self._base + path, data, headers)
        try:
            answer = json.loads(content) if content else None
        except ValueError:
            status, answer = max(status, 500), {"message": content[:200].decode(errors="replace")}
        if status >= 400:
            found = answer if isinstance(answer, dict) else {}
            answer = {
                "error_code": found.get("error_code", status),
                "message": found.get("message", f"HTTP {status}"),
            }
        return status, answer

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        for is_last in (False, True):
            is_used = self._connection.sock is not None
            try:
                self._connection.request(method, path, data, headers)
                response = self._connection.getresponse()
                return response.status, response.read()
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()
                # A registry may close an idle connection; a new connection shows whether the registry is still running.
                if is_last or not (is_used and isinstance(error, (http.client.HTTPException, ConnectionError))):
                    why = getattr(error, "strerror", None) or error
                    raise RegistryUnreachable(f"no registry answers at {self.url}: {why}") from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._connection.close()
