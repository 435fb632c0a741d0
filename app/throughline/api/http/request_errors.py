"""Errors that the HTTP interface raises itself, in addition to those of `domain/errors.py`.

`problem_documents.py` maps each of them to its HTTP status.
"""

from dataclasses import dataclass

from throughline.domain.errors import PermanentError, TemporaryError


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong value in a request: the dotted name of its field and the reason, never the value itself."""

    field: str
    detail: str


class InvalidRequest(PermanentError):
    """Error for a well-formed request with unacceptable values; `errors` names each of them."""

    code = "invalid_input"

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        """Store `errors`; the first one gives the error its text."""
        first = errors[0]
        super().__init__(f"{first.field}: {first.detail}" if first.field else first.detail)
        self.errors = errors


class MalformedBody(PermanentError):
    """Error for a body that cannot be parsed as JSON in UTF-8."""

    code = "malformed_body"


class BodyTooLarge(PermanentError):
    """Error for a body larger than this service accepts."""

    code = "body_too_large"


class BodyMemoryExhausted(TemporaryError):
    """Error for a body that must wait: the process, or the body's owner, holds as many body bytes as allowed."""

    code = "bodies_held"


class BodyTooSlow(PermanentError):
    """Error for a body that did not arrive in time."""

    code = "body_too_slow"


class HeadTooSlow(PermanentError):
    """Error for a request line and headers that did not arrive in time."""

    code = "head_too_slow"


class HeadTooLarge(PermanentError):
    """Error for a request line and headers, or trailers, that are longer than this service accepts."""

    code = "head_too_large"


class TooManyConnections(TemporaryError):
    """Error for a connection beyond the largest number that the process accepts."""

    code = "too_many_connections"


class MalformedRequest(PermanentError):
    """Error for data on a connection that is not HTTP."""

    code = "malformed_request"


class UnsupportedMediaType(PermanentError):
    """Error for a body that is not declared as plain JSON: another type, another character set, or compressed."""

    code = "unsupported_media_type"


class OriginRefused(PermanentError):
    """Error for a request in local mode whose Host, Origin or proxy header names another machine.

    It is also raised for a change that a page of another port of this machine requests.
    """

    code = "origin_refused"


class ServiceStopping(TemporaryError):
    """Error for a request that still waits when the process stops. Its run continues in another process."""

    code = "service_stopping"


class StreamAborted(Exception):
    """Signal to cut an event stream before its last event, so that its reader reconnects."""
