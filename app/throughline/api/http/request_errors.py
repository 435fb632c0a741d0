"""What the door itself refuses, before or beside the domain's own errors; `errors.py` gives each its status."""

from dataclasses import dataclass

from throughline.domain.errors import PermanentError, TemporaryError


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong value: the dotted name of its place, and what is wrong. Never the value itself."""

    field: str
    detail: str


class InvalidRequest(PermanentError):
    """The request was understood but values in it are not acceptable; `errors` names each."""

    code = "invalid_input"

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        """Keep `errors`; the first one makes the sentence."""
        first = errors[0]
        super().__init__(f"{first.field}: {first.detail}" if first.field else first.detail)
        self.errors = errors


class MalformedBody(PermanentError):
    """The body is not JSON in UTF-8, or nested beyond reason."""

    code = "malformed_body"


class BodyTooLarge(PermanentError):
    """The body is larger than this service takes."""

    code = "body_too_large"


class BodiesHeld(TemporaryError):
    """The process, or one owner in it, holds as many bytes of bodies as it may."""

    code = "bodies_held"


class BodyTooSlow(PermanentError):
    """The body did not arrive in time."""

    code = "body_too_slow"


class HeadTooSlow(PermanentError):
    """The request line and headers did not arrive in time."""

    code = "head_too_slow"


class HeadTooLarge(PermanentError):
    """The request line and headers, or the trailers, are longer than this service takes."""

    code = "head_too_large"


class TooManyConnections(TemporaryError):
    """The process has as many connections as it takes."""

    code = "too_many_connections"


class MalformedRequest(PermanentError):
    """What came over a connection is no HTTP."""

    code = "malformed_request"


class UnsupportedMediaType(PermanentError):
    """The body is not declared as plain JSON: another type, character set or a compression."""

    code = "unsupported_media_type"


class OriginRefused(PermanentError):
    """Local mode serves this machine only; the Host or Origin header, or that of a proxy, names another."""

    code = "origin_refused"


class ServiceStopping(TemporaryError):
    """The process stops while a request still waits; the run goes on elsewhere."""

    code = "service_stopping"


class StreamAborted(Exception):
    """The event stream must be cut, so that its reader comes back: its last event has not been sent."""
