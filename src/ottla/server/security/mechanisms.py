"""SASL mechanisms, as conversations without I/O: a token from the client goes in, the server's next one comes out."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ottla.metadata.image import ScramCredential
from ottla.metadata.scram import ITERATIONS_MIN


class Refused(Exception):
    """Wrong or invalid credentials; the text is for the log and never for the client."""


class RefusedOpenly(Refused):
    """Like `Refused`, with a message for the client."""


class Mechanism(Protocol):
    """One conversation; `complete` means that the client is authenticated, and `user` is its name."""

    complete: bool
    user: str
    expires_ms: int | None
    """When the credential itself expires, in epoch time."""
    by_token: bool
    """Whether the client used a delegation token."""

    def evaluate(self, token: bytes) -> bytes: ...


_OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"


class Plain:
    """RFC 4616: the password itself; only sensible inside TLS."""

    __slots__ = ("_passwords", "by_token", "complete", "expires_ms", "user")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise Refused("a PLAIN token that is not UTF-8") from None
        if len(parts) != 3:
            # Kafka stops counting at four.
            raise RefusedOpenly(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}")
        identity, user, password = parts
        if not user:
            raise RefusedOpenly("Authentication failed: username not specified")
        if not password:
            raise RefusedOpenly("Authentication failed: password not specified")
        known = self._passwords.get(user)
        # An unknown user costs the same comparison as a known one.
        right = hmac.compare_digest(password.encode(), (known if known is not None else "").encode())
        if known is None or not right:
            raise RefusedOpenly("Authentication failed: Invalid username or password")
        if identity and identity != user:
            raise RefusedOpenly(_OTHER_IDENTITY)
        self.user = user
        self.complete = True
        return b""


class TokenCredential(NamedTuple):
    """What SCRAM needs to know about a delegation token."""

    owner: str
    expires_ms: int
    credential: ScramCredential


_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,]*)*"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<identity>{_SASL_NAME}))?,"
    rf"(?P<bare>(?:m=[^,]*,)?n=(?P<user>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


_SCRAM_BYTES_MAX = 32 << 10
"""Names, nonces and proofs are far shorter; parsing a whole frame would cost more than refusing it."""


class Scram:
    """RFC 5802: the password is never sent, and the server does not know it."""

    __slots__ = (
        "_credential",
        "_find",
        "_find_token",
        "_first",
        "_hash",
        "_header",
        "_new_nonce",
        "_nonce",
        "by_token",
        "complete",
        "expires_ms",
        "user",
    )

    def __init__(
        self,
        hash_name: str,
        find: Callable[[str], ScramCredential | None],
        find_token: Callable[[str], TokenCredential | None],
        new_nonce: Callable[[], str],
    ) -> None:
        self._hash = hash_name
        self._find = find
        self._find_token = find_token
        self._new_nonce = new_nonce
        self._credential: ScramCredential | None = None
        self._first = ""
        self._header = ""
        """The header of the first message: channel binding (which is not used) and the authorization id."""
        self._nonce = ""
        self.complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, token: bytes) -> bytes:
        if len(token) > _SCRAM_BYTES_MAX:
            raise Refused("a SCRAM message that is too long")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise Refused("a SCRAM message that is not UTF-8") from None
        return self._on_final(text) if self._first else self._on_first(text)

    def _on_first(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise Refused("an invalid first SCRAM message")
        user = found["user"].replace("=2C", ",").replace("=3D", "=")
        extensions = dict(part.split("=", 1) for part in found["extensions"].split(",") if part)
        if extensions.get("tokenauth", "").lower() == "true":
            known = self._find_token(user)
            if known is None:
                raise Refused("an unknown delegation token")
            self.user, self.expires_ms, self._credential = known
            self.by_token = True
        else:
            self._credential = self._find(user)
            self.user = user
        if self._credential is None:
            raise Refused("a user without SCRAM credentials")
        identity = (found["identity"] or "").replace("=2C", ",").replace("=3D", "=")
        if identity and identity != user:
            raise RefusedOpenly(_OTHER_IDENTITY)
        if self._credential.iterations < ITERATIONS_MIN:
            raise Refused(f"SCRAM credentials with {self._credential.iterations} iterations, fewer than allowed")
        self._nonce = found["nonce"] + self._new_nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._first = f"{found['bare']},{answer}"
        self._header = text.removesuffix(found["bare"])
        return answer.encode()

    def _on_final(self, text: str) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        credential, self._credential = self._credential, None
        if found is None or credential is None:
            raise Refused("an invalid final SCRAM message")
        if found["nonce"] != self._nonce:
            raise Refused("a nonce that differs from the agreed one")
        if found["binding"] != base64.b64encode(self._header.encode()).decode():
            raise Refused("a channel binding that does not repeat the header of the first message")
        proven = f"{self._first},{found['unproven']}".encode()
        signature = hmac.digest(credential.stored_key, proven, self._hash)
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except binascii.Error:
            raise Refused("a proof that is not base64") from None
        if len(proof) != len(signature):
            raise Refused("a proof of the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise Refused("a wrong password")
        self.complete = True
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, proven, self._hash))


class BearerToken(NamedTuple):
    """The content of a valid token."""

    user: str
    expires_ms: int


class InvalidToken(Exception):
    """A token that is not accepted; the client gets `status` (and `scope`), the text is for the log."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


_BEARER = re.compile(
    rb"n,(?:a=(?P<identity>[^,\x00\x01]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.DOTALL
)
_KVSEP = b"\x01"


class OAuthBearer:
    """RFC 7628: a token from another server. A refused client gets the reason, acknowledges it, and then its
    authentication fails."""

    __slots__ = ("_error", "_validate", "by_token", "complete", "expires_ms", "user")

    def __init__(self, validate: Callable[[str], BearerToken]) -> None:
        self._validate = validate
        self._error: str | None = None
        self.complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, token: bytes) -> bytes:
        if token == _KVSEP and self._error is not None:
            raise RefusedOpenly(self._error)
        self._error = None
        found = _BEARER.fullmatch(token)
        if found is None:
            raise Refused("an invalid OAUTHBEARER message")
        pairs = dict(pair.split(b"=", 1) for pair in found["pairs"].split(_KVSEP) if pair)
        scheme, _, value = pairs.get(b"auth", b"").decode("ascii").strip().partition(" ")
        if scheme.lower() != "bearer" or not value.strip():
            raise Refused("an OAUTHBEARER message without a bearer token")
        try:
            accepted = self._validate(value.strip())
        except InvalidToken as error:
            scope = f', "scope":"{error.scope}"' if error.scope is not None else ""
            self._error = f'{{"status":"{error.status}"{scope}}}'
            return self._error.encode()
        identity = (found["identity"] or b"").decode(errors="replace")
        if identity and identity != accepted.user:
            raise RefusedOpenly(
                f"Authentication failed: Client requested an authorization id ({identity}) that is different from "
                f"the token's principal name ({accepted.user})"
            )
        self.user, self.expires_ms = accepted
        self.complete = True
        return b""
