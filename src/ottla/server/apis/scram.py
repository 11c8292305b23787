"""DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from ottla.enums import AclOperation, AnsweredBy
from ottla.errors import NONE, KafkaError
from ottla.metadata.scram import NewCredential, alter_credentials, describe_credentials
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@handles(
    DescribeUserScramCredentialsRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OnCluster(AclOperation.DESCRIBE),
)
def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """v0 (KIP-554): mechanisms and iterations, of some users or of all; never a key."""
    users = None if request.users is None else [user.name for user in request.users]
    response = DescribeUserScramCredentialsResponse(error_code=NONE, error_message="")
    info = DescribeUserScramCredentialsResponse.CredentialInfo
    for user, found in describe_credentials(ctx.services.metadata, users).items():
        if isinstance(found, KafkaError):
            response.results.append(Described(user=user, error_code=found.code, error_message=found.message))
        else:
            infos = [info(mechanism=mechanism, iterations=iterations) for mechanism, iterations in found]
            response.results.append(Described(user=user, error_code=NONE, error_message="", credential_infos=infos))
    return response


def _alter_error(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([d.name for d in request.deletions] + [u.name for u in request.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[Altered(user=user, error_code=error.code, error_message=own_message(error)) for user in users]
    )


@handles(
    AlterUserScramCredentialsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
    on_error=_alter_error,
)
def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """v0 (KIP-554): sets and removes credentials; one result per user."""
    records, outcomes = alter_credentials(
        ctx.services.metadata,
        [(deletion.name, deletion.mechanism) for deletion in request.deletions],
        [
            NewCredential(new.name, new.mechanism, new.iterations, new.salt, new.salted_password)
            for new in request.upsertions
        ],
    )
    ctx.services.controller.commit(records)
    return AlterUserScramCredentialsResponse(
        results=[
            Altered(
                user=user,
                error_code=NONE if error is None else error.code,
                error_message=None if error is None else own_message(error),
            )
            for user, error in outcomes.items()
        ]
    )
