"""What can go wrong between the command line and the service it talks to."""

from throughline.domain.errors import PermanentError, TemporaryError


class ServiceUnreachable(TemporaryError):
    """There was no connection to the service, or it broke, or nothing came back in time."""

    code = "service_unreachable"


class RequestRefused(PermanentError):
    """The service answered with an error; `status` is the HTTP status."""

    code = "request_refused"

    def __init__(self, detail: str, *, status: int) -> None:
        """Keep `detail`, the service's own sentence, and the status."""
        super().__init__(detail)
        self.status = status


class UnexpectedReply(PermanentError):
    """Something answered, but not in the way of this service."""

    code = "unexpected_reply"


class AnswerFailed(PermanentError):
    """The turn ended without an answer."""

    code = "answer_failed"
