"""Bearer tokens: JSON Web Tokens signed by a key of a JWKS, or, if configured, unsigned."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.config import ConfigError
from ottla.lazy_imports import import_late, lazy
from ottla.server.security.mechanisms import BearerToken, InvalidToken

if TYPE_CHECKING:
    import jwt
else:
    jwt = lazy("jwt")

_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC"}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *_CURVES)
_RSA_BITS_MIN = 2048

Claims = Mapping[str, Any]


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of the token is not base64") from None


def _object(part: str) -> dict[str, Any]:
    try:
        value = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        raise InvalidToken("a part of the token is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part of the token is not a JSON object")
    return value


def split_token(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """(header, claims, signature)"""
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise InvalidToken("a token has three parts")
    return _object(parts[0]), _object(parts[1]), _decoded(parts[2])


class KeySet:
    """The public keys of a JWKS by their ids, ready to verify with. PyJWT reads the keys and checks signatures."""

    def __init__(self, document: bytes) -> None:
        try:
            keys = json.loads(document)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError("it is not a JSON document with a list of `keys`") from None
        if not isinstance(keys, list):
            raise ValueError("its `keys` are not a list")
        self._keys: list[tuple[str | None, Mapping[str, Any]]] = [
            (key.get("kid"), key) for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"
        ]

    def knows(self, key_id: str | None) -> bool:
        return any(key_id is None or known == key_id for known, _ in self._keys)

    def verify(self, algorithm: str, key_id: str | None, token: str) -> bool:
        """Whether a matching key signed the token. The algorithm must match the kind of key."""
        return any(
            _verified(key, algorithm, token)
            for known, key in self._keys
            if (key_id is None or known == key_id) and key.get("alg", algorithm) == algorithm
        )


def _verified(key: Mapping[str, Any], algorithm: str, token: str) -> bool:
    if algorithm not in _ALGORITHMS or key.get("kty") != _KEY_TYPES[algorithm[:2]]:
        return False
    if key.get("crv") != _CURVES.get(algorithm):
        return False
    try:
        public = jwt.PyJWK(dict(key), algorithm).key
        if algorithm not in _CURVES and public.key_size < _RSA_BITS_MIN:
            return False
        jwt.PyJWS(algorithms=_ALGORITHMS).decode(token, public, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        return False  # the last three: fields of a key that are not text or numbers
    return True


class Expectations:
    """The claims that an accepted token must have."""

    def __init__(
        self,
        *,
        issuer: str | None = None,
        audience: Sequence[str] = (),
        scope_claim: str = "scope",
        user_claim: str = "sub",
        clock_skew_ms: int = 30_000,
        required_scope: Sequence[str] = (),
        needs_issue_time: bool = True,
    ) -> None:
        self.issuer = issuer
        self.audience = frozenset(audience)
        self.scope_claim = scope_claim
        self.user_claim = user_claim
        self.clock_skew_ms = clock_skew_ms
        self.required_scope = tuple(required_scope)
        self.needs_issue_time = needs_issue_time

    def check(self, claims: Claims, now_ms: int) -> BearerToken:
        user = claims.get(self.user_claim)
        if not isinstance(user, str) or not user.strip() or not _is_text(user):
            raise InvalidToken(f"no user in the claim `{self.user_claim}`")
        expires_ms = _time_ms(claims, "exp")
        if expires_ms is None:
            raise InvalidToken("no expiry time")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("expired")
        issued_ms = _time_ms(claims, "iat")
        if issued_ms is None and self.needs_issue_time:
            raise InvalidToken("no issue time")
        if issued_ms is not None and (issued_ms > expires_ms or issued_ms - self.clock_skew_ms > now_ms):
            raise InvalidToken("issued in the future")
        not_before_ms = _time_ms(claims, "nbf")
        if not_before_ms is not None and not_before_ms - self.clock_skew_ms > now_ms:
            raise InvalidToken("not valid yet")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken("another issuer")
        if self.audience:
            audience = claims.get("aud")
            named = audience if isinstance(audience, list) else [audience]
            if not any(isinstance(one, str) and one in self.audience for one in named):
                raise InvalidToken("another audience")
        scope = _scope(claims.get(self.scope_claim))
        if not set(self.required_scope) <= scope:
            raise InvalidToken("a scope is missing", "insufficient_scope", " ".join(self.required_scope))
        return BearerToken(user.strip(), expires_ms)


def _is_text(value: str) -> bool:
    """JSON can contain half of a surrogate pair, which cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _time_ms(claims: Claims, name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise InvalidToken(f"`{name}` is not a time")
    return int(value * 1000)


def _scope(value: object) -> set[str]:
    if isinstance(value, str):
        return set(value.split())
    return {str(item) for item in value} if isinstance(value, list) else set()


class Keys(Protocol):
    """The source of the keys; `expedite` looks for a missing one."""

    keys: KeySet | None

    def expedite(self, key_id: str | None) -> None: ...


class SignedTokens:
    """Accepts tokens that a key of the JWKS signed."""

    def __init__(self, expected: Expectations, now_ms: Callable[[], int], source: Keys) -> None:
        self._expected = expected
        self._now_ms = now_ms
        self._source = source

    def validate(self, token: str) -> BearerToken:
        header, claims, _ = split_token(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or (key_id is not None and not isinstance(key_id, str)) or "crit" in header:
            raise InvalidToken("an invalid header")
        keys = self._source.keys
        if keys is None or not keys.knows(key_id):
            self._source.expedite(key_id)
            raise InvalidToken("signed with a key that the JWKS does not have")
        if not keys.verify(algorithm, key_id, token):
            raise InvalidToken("the signature does not match")
        return self._expected.check(claims, self._now_ms())


class UnsecuredTokens:
    """Accepts unsigned tokens: for tests, if configured."""

    def __init__(self, expected: Expectations, now_ms: Callable[[], int]) -> None:
        self._expected = expected
        self._now_ms = now_ms

    def validate(self, token: str) -> BearerToken:
        header, claims, signature = split_token(token)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("a signed token, but unsigned ones are expected")
        return self._expected.check(claims, self._now_ms())


def need_package(why: str, module: str) -> None:
    """Report a missing package before the first client connects."""
    try:
        import_late(module)
    except ImportError:
        name = "PyJWT" if module == "jwt" else module
        raise ConfigError(f"{why} needs the package `{name}`: pip install 'ottla[security]'") from None
