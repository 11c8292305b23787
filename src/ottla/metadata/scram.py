"""SCRAM credentials (KIP-554): the client salts the password, the metadata stores what a server needs to verify it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

from ottla.enums import ScramMechanism
from ottla.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnknownServerError,
    UnsupportedSaslMechanism,
)
from ottla.metadata.image import MetadataImage, ScramCredential
from ottla.metadata.java_hash_order import java_names
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

HASHES: dict[int, str] = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
MECHANISMS: dict[int, str] = {
    ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
    ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
}

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384


class NewCredential(NamedTuple):
    """A credential to set; the client has salted and iterated the password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def credential(mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The stored credential: keys that verify the password but do not contain it (RFC 5802)."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )


def alter_credentials(
    image: MetadataImage, deletions: Iterable[tuple[str, int]], upsertions: Iterable[NewCredential]
) -> tuple[list[Message], dict[str, KafkaError | None]]:
    """The records, and one outcome per user. A user that occurs twice is refused, even with two mechanisms."""
    planned: dict[str, Message | None] = {}
    errors: dict[str, KafkaError] = {}

    def plan(user: str, make: Message | KafkaError | None) -> None:
        if user in errors:
            return
        if user in planned:
            del planned[user]
            errors[user] = DuplicateResource("A user credential cannot be altered twice in the same request")
        elif isinstance(make, KafkaError):
            errors[user] = make
        else:
            planned[user] = make

    for user, mechanism in deletions:
        plan(user, _deletion(image, user, mechanism))
    for new in upsertions:
        plan(new.user, _upsertion(new))
    for user in [user for user, record in planned.items() if record is None]:
        del planned[user]
        errors[user] = UnknownServerError()  # Java refuses an empty key, so Kafka fails at the end
    removed = [user for user, record in planned.items() if isinstance(record, stored.RemoveUserScramCredentialRecord)]
    added = [user for user in planned if user not in removed]
    order = [user for users in (removed, added, errors) for user in java_names(users)]
    return [record for record in planned.values() if record is not None], {user: errors.get(user) for user in order}


def _deletion(image: MetadataImage, user: str, mechanism: int) -> Message | KafkaError:
    error = _check_names(user, mechanism)
    if error is not None:
        return error
    if (user, mechanism) not in image.credentials:
        return ResourceNotFound("Attempt to delete a user credential that does not exist")
    return stored.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)


def _upsertion(new: NewCredential) -> Message | KafkaError | None:
    """None if the salted password is empty, which cannot become a credential."""
    error = _check_names(new.user, new.mechanism)
    if error is not None:
        return error
    if new.iterations < ITERATIONS_MIN:
        return UnacceptableCredential("Too few iterations")
    if new.iterations > ITERATIONS_MAX:
        return UnacceptableCredential("Too many iterations")
    if not new.salted_password:
        return None
    made = credential(new.mechanism, new.salt, new.salted_password, new.iterations)
    return stored.UserScramCredentialRecord(
        name=new.user,
        mechanism=new.mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _check_names(user: str, mechanism: int) -> KafkaError | None:
    if not user:
        return UnacceptableCredential("Username must not be empty")
    if mechanism not in MECHANISMS:
        return UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    return None


def describe_credentials(
    image: MetadataImage, users: list[str] | None
) -> dict[str, list[tuple[int, int]] | KafkaError]:
    """(mechanism, iterations) of each requested user; of all users if none is given."""
    known: dict[str, list[tuple[int, int]]] = {}
    for (user, mechanism), kept in sorted(image.credentials.items()):
        known.setdefault(user, []).append((mechanism, kept.iterations))
    if not users:
        return {user: known[user] for user in java_names(known)}
    described: dict[str, list[tuple[int, int]] | KafkaError] = {}
    for user in users:
        if user in described:
            described[user] = DuplicateResource(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            )
        elif user in known:
            described[user] = known[user]
        else:
            described[user] = ResourceNotFound(f"Attempt to describe a user credential that does not exist: {user}")
    return {user: described[user] for user in java_names(described)}
