"""How an API is declared: `@handles(SomeRequest, …)` on the function that answers it.

The declaration contains everything that the rest of the broker needs to know about the API. `ottla/api_table.py` holds
the part that a broker needs before it imports the handler; `scripts/generate` writes it from the declarations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.answers import Answer
from ottla.api_table import APIS, ApiRow
from ottla.enums import AnsweredBy, QuotaType
from ottla.errors import KafkaError
from ottla.wire.messages import RESPONSES
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.server.api.context import RequestContext
    from ottla.server.api.permissions import Permission
    from ottla.server.api.route import Model

RequestT = TypeVar("RequestT", bound=Message)

Handler = Callable[["RequestContext", Any], "Answer[Message | None]"]
"""None if the client expects no response."""

ErrorResponder = Callable[["RequestContext", Any, KafkaError], "Message | None"]


class Declaration(NamedTuple):
    """The properties of one API, as `@handles` declares them."""

    request: type[Message]
    response: type[Message]
    handler: Handler
    versions: tuple[int, int]
    advertised: bool
    answered_by: AnsweredBy
    changes_metadata: bool
    permissions: tuple[Permission, ...]
    on_error: ErrorResponder
    model: Model | None
    carries_records: bool
    quota: QuotaType
    may_create_topics: Callable[[MetadataImage, Any], bool] | None

    def row(self) -> ApiRow:
        """The API's row of the table."""
        return ApiRow(
            self.request.__name__.removesuffix("Request"),
            self.request.__module__.rpartition(".")[2],
            self.handler.__module__.rpartition(".")[2],
            self.versions,
            self.answered_by,
            self.changes_metadata,
            self.advertised,
        )


DECLARED: dict[int, Declaration] = {}
"""By API key, for imported modules."""

table_is_checked = True
"""False while `scripts/generate` writes the table."""


def handles(
    request: type[RequestT],
    *,
    answered_by: AnsweredBy,
    permission: Permission | list[Permission],
    versions: tuple[int, int] | None = None,
    advertised: bool = True,
    changes_metadata: bool | None = None,
    on_error: ErrorResponder | None = None,
    model: Model | None = None,
    carries_records: bool = False,
    quota: QuotaType = QuotaType.REQUEST,
    may_create_topics: Callable[[MetadataImage, RequestT], bool] | None = None,
) -> Callable[[Callable[[RequestContext, RequestT], Any]], Callable[[RequestContext, RequestT], Any]]:
    """Declare an API; the function below answers it.

    An authorizer requires `permission`, or every entry if it is a list. `versions` limits the served versions if the
    messages define more (unstable versions). An API that is not `advertised` is served, but ApiVersions does not list
    it.

    An API that the controller answers `changes_metadata`, unless declared otherwise. `may_create_topics` says whether a
    request must go to the controller because it may create a topic.

    `on_error` builds the answer for an error of the whole request; without it the response's own `error_code` (and
    `error_message`) hold the error. `model` serves repeated requests of a connection without decoding each of them. An
    answer that `carries_records` holds regions of files; any other is plain bytes.
    """

    def declare(handler: Callable[[RequestContext, RequestT], Any]) -> Callable[[RequestContext, RequestT], Any]:
        key = request.API_KEY
        assert key in APIS, f"ottla/api_table.py does not list {request.__name__}: run scripts/generate"
        assert key not in DECLARED, f"{request.__name__} is handled twice"
        by_controller = answered_by is AnsweredBy.CONTROLLER
        declared = Declaration(
            request=request,
            response=RESPONSES[key],
            handler=handler,
            versions=versions if versions is not None else (request.MIN_VERSION, request.MAX_VERSION),
            advertised=advertised,
            answered_by=answered_by,
            changes_metadata=by_controller if changes_metadata is None else changes_metadata,
            permissions=tuple(permission) if isinstance(permission, list) else (permission,),
            on_error=on_error if on_error is not None else _top_level_error,
            model=model,
            carries_records=carries_records,
            quota=quota,
            may_create_topics=may_create_topics,
        )
        assert not table_is_checked or APIS[key] == declared.row(), (
            f"ottla/api_table.py is out of date about {request.__name__}: run scripts/generate"
        )
        DECLARED[key] = declared
        return handler

    return declare


def _top_level_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    response = RESPONSES[ctx.api_key]()
    if not hasattr(response, "error_code"):
        raise AssertionError(f"{type(request).__name__} needs its own on_error") from error
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response
