"""Delegation tokens (KIP-48): create, renew and expire them as records. The secret of a token is never stored.

A token's HMAC is computed from its id and `delegation.token.secret.key`, so every broker with the same key can compute
it, but the metadata does not reveal it.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from ottla.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)
from ottla.metadata.image import DelegationToken, MetadataImage
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

_LONG_MAX = (1 << 63) - 1
_USER = "User"


class TokenRules:
    """The lifetime of tokens, and the key for their HMACs; without a key there are no tokens."""

    def __init__(self, secret: str | None, max_lifetime_ms: int, expiry_ms: int) -> None:
        self._secret = secret
        self._max_lifetime_ms = max_lifetime_ms
        self._expiry_ms = expiry_ms

    def check_enabled(self) -> None:
        if not self._secret:
            raise DelegationTokenAuthDisabled()

    def hmac(self, token_id: str) -> bytes:
        self.check_enabled()
        return hmac.digest((self._secret or "").encode(), token_id.encode(), "sha512")

    def create(
        self,
        token_id: str,
        owner: str,
        requester: str,
        renewers: Sequence[tuple[str, str]],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> tuple[list[Message], DelegationToken]:
        self.check_enabled()
        if any(kind != _USER for kind, _ in renewers):
            raise InvalidPrincipalType()
        lifetime_ms = min(self._max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else self._max_lifetime_ms
        max_ms = min(now_ms + lifetime_ms, _LONG_MAX)
        token = DelegationToken(
            token_id,
            owner,
            requester,
            tuple(f"{kind}:{name}" for kind, name in renewers),
            now_ms,
            max_ms,
            min(max_ms, now_ms + self._expiry_ms),
        )
        return [_record(token)], token

    def renew(
        self, image: MetadataImage, token_hmac: bytes, who: str, period_ms: int, now_ms: int
    ) -> tuple[list[Message], int]:
        token = self._found(image, token_hmac)
        if token.max_ms < now_ms or token.expiry_ms < now_ms:
            raise DelegationTokenExpired()
        _check_renewer(token, who)
        period_ms = min(self._expiry_ms, period_ms) if period_ms > 0 else self._expiry_ms
        expiry_ms = min(token.max_ms, now_ms + period_ms)
        return [_record(token._replace(expiry_ms=expiry_ms))], expiry_ms

    def expire(
        self, image: MetadataImage, token_hmac: bytes, who: str, period_ms: int, now_ms: int
    ) -> tuple[list[Message], int]:
        """A negative period expires the token at once."""
        token = self._found(image, token_hmac)
        _check_renewer(token, who)
        if period_ms < 0:
            return [stored.RemoveDelegationTokenRecord(token_id=token.token_id)], now_ms
        if token.max_ms < now_ms or token.expiry_ms < now_ms:
            raise DelegationTokenExpired()
        expiry_ms = min(token.max_ms, now_ms + period_ms)
        return [_record(token._replace(expiry_ms=expiry_ms))], expiry_ms

    def _found(self, image: MetadataImage, token_hmac: bytes) -> DelegationToken:
        self.check_enabled()
        for token in image.delegation_tokens.values():
            if hmac.compare_digest(self.hmac(token.token_id), token_hmac):
                return token
        raise DelegationTokenNotFound()


def expired_tokens(image: MetadataImage, now_ms: int) -> list[Message]:
    """The records that remove expired tokens."""
    return [
        stored.RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in image.delegation_tokens.values()
        if token.max_ms < now_ms or token.expiry_ms < now_ms
    ]


def _check_renewer(token: DelegationToken, who: str) -> None:
    if who != token.owner and who not in token.renewers:
        raise DelegationTokenOwnerMismatch()


def _record(token: DelegationToken) -> Message:
    return stored.DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )
