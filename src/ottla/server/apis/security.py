"""SaslHandshake and SaslAuthenticate at the wrong time, and delegation tokens.

Authentication itself comes before any handler: see `ottla.server.security.sasl`.
"""

from __future__ import annotations

from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import (
    NONE,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    IllegalSaslState,
    InvalidPrincipalType,
    KafkaError,
    UnknownServerError,
)
from ottla.metadata.image import DelegationToken
from ottla.server.api import ChecksItself, OpenToAll, RequestContext, handles
from ottla.wire.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_ANONYMOUS = "User:ANONYMOUS"


@handles(
    SaslHandshakeRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OpenToAll("it comes before authentication"),
)
def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """v0–v1. This request is from a connection that needs no authentication, or is already authenticated."""
    return SaslHandshakeResponse(error_code=IllegalSaslState.code, mechanisms=[])


@handles(
    SaslAuthenticateRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OpenToAll("it comes before authentication"),
)
def sasl_authenticate(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """v0–v2. Like SaslHandshake: the connection needs no authentication, or is already authenticated."""
    return SaslAuthenticateResponse(
        error_code=IllegalSaslState.code,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


def _check_allowed(ctx: RequestContext) -> None:
    """Tokens are for clients that have authenticated, but not with a token."""
    connection = ctx.connection
    protocol = connection.listener.security_protocol
    if protocol == "PLAINTEXT" or connection.token_authenticated or (protocol == "SSL" and ctx.principal == _ANONYMOUS):
        raise DelegationTokenRequestNotAllowed()


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _create_error(
    ctx: RequestContext, request: CreateDelegationTokenRequest, error: KafkaError
) -> CreateDelegationTokenResponse:
    kind, name = _split(_owner(ctx, request))
    requester_kind, requester_name = _split(ctx.principal)
    return CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def _owner(ctx: RequestContext, request: CreateDelegationTokenRequest) -> str:
    if request.owner_principal_name and request.owner_principal_type is not None:
        return f"{request.owner_principal_type}:{request.owner_principal_name}"
    return ctx.principal


@handles(
    CreateDelegationTokenRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=ChecksItself("CREATE_TOKENS on the owner, if it is another user"),
    on_error=_create_error,
)
def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """v0–v3 (KIP-48). v3 for another owner, with the permission to create tokens for that user (KIP-373)."""
    if request.owner_principal_name and request.owner_principal_type is None:
        raise UnknownServerError()  # a name without a type: Kafka fails on it
    _check_allowed(ctx)
    broker = ctx.services
    owner = _owner(ctx, request)
    if owner != ctx.principal and not ctx.may(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise DelegationTokenAuthorizationFailed()
    renewers = [(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
    if any(kind != "User" for kind, _ in renewers):
        raise InvalidPrincipalType()
    rules = broker.security.token_rules
    records, token = rules.create(
        broker.security.new_token_id(), owner, ctx.principal, renewers, request.max_lifetime_ms, broker.clock.now_ms()
    )
    broker.controller.commit(records)
    kind, name = _split(owner)
    requester_kind, requester_name = _split(ctx.principal)
    return CreateDelegationTokenResponse(
        error_code=NONE,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=token.issue_ms,
        expiry_timestamp_ms=token.expiry_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=rules.hmac(token.token_id),
    )


def _renew_error(
    ctx: RequestContext, request: RenewDelegationTokenRequest, error: KafkaError
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


@handles(
    RenewDelegationTokenRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=ChecksItself("to be its owner or one of its renewers"),
    on_error=_renew_error,
)
def renew_delegation_token(ctx: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """v0–v2 (KIP-48): by the owner or a renewer, up to the token's maximum lifetime."""
    _check_allowed(ctx)
    broker = ctx.services
    records, expiry_ms = broker.security.token_rules.renew(
        broker.metadata, request.hmac, ctx.principal, request.renew_period_ms, broker.clock.now_ms()
    )
    broker.controller.commit(records)
    return RenewDelegationTokenResponse(error_code=NONE, expiry_timestamp_ms=expiry_ms)


def _expire_error(
    ctx: RequestContext, request: ExpireDelegationTokenRequest, error: KafkaError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


@handles(
    ExpireDelegationTokenRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=ChecksItself("to be its owner or one of its renewers"),
    on_error=_expire_error,
)
def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """v0–v2 (KIP-48): by the owner or a renewer; a negative period ends it immediately."""
    _check_allowed(ctx)
    broker = ctx.services
    records, expiry_ms = broker.security.token_rules.expire(
        broker.metadata, request.hmac, ctx.principal, request.expiry_time_period_ms, broker.clock.now_ms()
    )
    broker.controller.commit(records)
    return ExpireDelegationTokenResponse(error_code=NONE, expiry_timestamp_ms=expiry_ms)


@handles(
    DescribeDelegationTokenRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=ChecksItself("DESCRIBE_TOKENS on the owner, or DESCRIBE on the token, unless it is the client's own"),
)
def describe_delegation_token(
    ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """v0–v3 (KIP-48): the tokens that the client owns, may renew or may describe. v3 the requester of each
    (KIP-373).
    """
    _check_allowed(ctx)
    rules = ctx.services.security.token_rules
    rules.check_enabled()
    wanted = None
    if request.owners is not None:
        wanted = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
    response = DescribeDelegationTokenResponse(error_code=NONE)
    for token in ctx.services.metadata.delegation_tokens.values():
        if not _is_visible(ctx, token, wanted):
            continue
        kind, name = _split(token.owner)
        requester_kind, requester_name = _split(token.requester)
        response.tokens.append(
            DescribeDelegationTokenResponse.DescribedDelegationToken(
                principal_type=kind,
                principal_name=name,
                token_requester_principal_type=requester_kind,
                token_requester_principal_name=requester_name,
                issue_timestamp=token.issue_ms,
                expiry_timestamp=token.expiry_ms,
                max_timestamp=token.max_ms,
                token_id=token.token_id,
                hmac=rules.hmac(token.token_id),
                renewers=[
                    renewer(principal_type=kind, principal_name=name) for kind, name in map(_split, token.renewers)
                ],
            )
        )
    return response


def _is_visible(ctx: RequestContext, token: DelegationToken, wanted: set[str] | None) -> bool:
    mine = {token.owner, *token.renewers}
    if wanted is not None and not mine & wanted:
        return False
    return (
        ctx.principal in mine
        or ctx.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or ctx.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )
