"""SASL PLAIN and SCRAM (RFC 5802) over SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from ottla.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism, error_for
from ottla.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.client.connection import Connection
    from ottla.client.security import Security


ITERATIONS_MIN: Final = 4096
"""As in Kafka's clients. With fewer iterations, an eavesdropper could easily guess the password."""
ITERATIONS_MAX: Final = 1_000_000
"""About a second of work. Without a limit, a malicious broker could keep the client busy forever."""


async def authenticate(connection: Connection, security: Security) -> None:
    """Authenticate. Raises SaslAuthenticationFailed with the broker's reason."""
    assert security.mechanism is not None
    handshake = await connection.call(SaslHandshakeRequest(mechanism=security.mechanism))
    if handshake.error_code == UnsupportedSaslMechanism.code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise UnsupportedSaslMechanism(f"{connection.address} offers these mechanisms: {offered}")
    if handshake.error_code == IllegalSaslState.code:
        raise IllegalSaslState(f"{connection.address} takes no login at this port: security.protocol is without SASL")
    if handshake.error_code:
        raise error_for(handshake.error_code)
    if security.mechanism == "PLAIN":
        await _exchange(connection, b"\0".join((b"", security.username.encode(), security.password.encode())))
        return
    scram = Scram(security.mechanism, security.username, security.password, secrets.token_urlsafe(24))
    server_first = await _exchange(connection, scram.first())
    server_final = await _exchange(connection, scram.final(server_first))
    scram.check(server_final)


async def _exchange(connection: Connection, data: bytes) -> bytes:
    response = await connection.call(SaslAuthenticateRequest(auth_bytes=data))
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    answer: bytes = response.auth_bytes
    return answer


class Scram:
    """The client's side of one SCRAM exchange, without I/O."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        text = server_first.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        if not fields.get("r", "").startswith(self._nonce):
            raise SaslAuthenticationFailed("the broker answered with a nonce that is not ours")
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslAuthenticationFailed(
                f"the broker asks for {iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Check the broker's proof that it knows the password too."""
        fields = dict(part.split("=", 1) for part in server_final.decode().split(",") if "=" in part)
        if "e" in fields:
            raise SaslAuthenticationFailed(fields["e"])
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise SaslAuthenticationFailed("the broker does not know the password: its signature is wrong")
