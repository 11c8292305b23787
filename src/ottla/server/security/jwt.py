"""Bearer tokens: JSON Web Tokens signed by a key of a JWKS, or, where that is asked for, not signed at all."""

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
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
else:
    exceptions = lazy("cryptography.exceptions")
    hashes = lazy("cryptography.hazmat.primitives.hashes")
    ec = lazy("cryptography.hazmat.primitives.asymmetric.ec")
    padding = lazy("cryptography.hazmat.primitives.asymmetric.padding")
    rsa = lazy("cryptography.hazmat.primitives.asymmetric.rsa")
    utils = lazy("cryptography.hazmat.primitives.asymmetric.utils")

_RSA_HASHES = {"RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512"}
_PSS_HASHES = {"PS256": "SHA256", "PS384": "SHA384", "PS512": "SHA512"}
_EC_HASHES = {"ES256": ("SHA256", "P-256"), "ES384": ("SHA384", "P-384"), "ES512": ("SHA512", "P-521")}
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


def split_token(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """(header, claims, what is signed, signature)"""
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise InvalidToken("a token has three parts")
    return _object(parts[0]), _object(parts[1]), f"{parts[0]}.{parts[1]}".encode(), _decoded(parts[2])


class KeySet:
    """The public keys of a JWKS by their ids, ready to verify with."""

    def __init__(self, document: bytes) -> None:
        try:
            keys = json.loads(document)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError("it is not a JSON document with a list of `keys`") from None
        if not isinstance(keys, list):
            raise ValueError("its `keys` are no list")
        self._keys: list[tuple[str | None, Mapping[str, Any]]] = [
            (key.get("kid"), key) for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"
        ]

    def knows(self, key_id: str | None) -> bool:
        return any(key_id is None or known == key_id for known, _ in self._keys)

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> bool:
        """Whether any fitting key made the signature. The algorithm must fit the kind of key: no confusion of both."""
        return any(
            _verified(key, algorithm, signed, signature)
            for known, key in self._keys
            if (key_id is None or known == key_id) and key.get("alg", algorithm) == algorithm
        )


def _number(value: object) -> int:
    return int.from_bytes(_decoded(value if isinstance(value, str) else ""), "big")


def _verified(key: Mapping[str, Any], algorithm: str, signed: bytes, signature: bytes) -> bool:
    kind = key.get("kty")
    try:
        if kind == "RSA" and (algorithm in _RSA_HASHES or algorithm in _PSS_HASHES):
            public = rsa.RSAPublicNumbers(_number(key.get("e")), _number(key.get("n"))).public_key()
            if public.key_size < _RSA_BITS_MIN:
                return False
            if algorithm in _RSA_HASHES:
                hashed = getattr(hashes, _RSA_HASHES[algorithm])()
                public.verify(signature, signed, padding.PKCS1v15(), hashed)
            else:
                hashed = getattr(hashes, _PSS_HASHES[algorithm])()
                public.verify(signature, signed, padding.PSS(padding.MGF1(hashed), hashed.digest_size), hashed)
            return True
        if kind == "EC" and algorithm in _EC_HASHES and key.get("crv") == _EC_HASHES[algorithm][1]:
            curve: ec.EllipticCurve = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}[
                key["crv"]
            ]
            size = (curve.key_size + 7) // 8
            if len(signature) != 2 * size:
                return False
            point = ec.EllipticCurvePublicNumbers(_number(key.get("x")), _number(key.get("y")), curve).public_key()
            halves = (int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big"))
            hashed = getattr(hashes, _EC_HASHES[algorithm][0])()
            point.verify(utils.encode_dss_signature(*halves), signed, ec.ECDSA(hashed))
            return True
    except (exceptions.InvalidSignature, ValueError, InvalidToken):
        pass
    return False


class Expectations:
    """What the claims of an accepted token must say."""

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
            raise InvalidToken("no time of expiry")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("expired")
        issued_ms = _time_ms(claims, "iat")
        if issued_ms is None and self.needs_issue_time:
            raise InvalidToken("no time of issue")
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
    """JSON can say half of a surrogate pair, which nothing could ever write down."""
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
    """Where the keys come from; `expedite` is told of one that is missing."""

    keys: KeySet | None

    def expedite(self, key_id: str | None) -> None: ...


class SignedTokens:
    """Accepts tokens that a key of the JWKS signed."""

    def __init__(self, expected: Expectations, now_ms: Callable[[], int], source: Keys) -> None:
        self._expected = expected
        self._now_ms = now_ms
        self._source = source

    def validate(self, token: str) -> BearerToken:
        header, claims, signed, signature = split_token(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or (key_id is not None and not isinstance(key_id, str)) or "crit" in header:
            raise InvalidToken("a header that cannot be understood")
        keys = self._source.keys
        if keys is None or not keys.knows(key_id):
            self._source.expedite(key_id)
            raise InvalidToken("signed with a key that the JWKS does not have")
        if not keys.verify(algorithm, key_id, signed, signature):
            raise InvalidToken("the signature does not fit")
        return self._expected.check(claims, self._now_ms())


class UnsecuredTokens:
    """Accepts tokens that nobody signed: for tests, where somebody asks for it."""

    def __init__(self, expected: Expectations, now_ms: Callable[[], int]) -> None:
        self._expected = expected
        self._now_ms = now_ms

    def validate(self, token: str) -> BearerToken:
        header, claims, _, signature = split_token(token)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("a signed token where unsecured ones are expected")
        return self._expected.check(claims, self._now_ms())


def need_cryptography(why: str) -> None:
    """Say what to install before the first client finds out."""
    try:
        import_late("cryptography")
    except ImportError:
        raise ConfigError(f"{why} needs the package `cryptography`: pip install 'ottla[security]'") from None
