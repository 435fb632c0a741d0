"""Errors that the command line raises itself about the service that it calls, and about answers and models."""

from throughline.domain.errors import PermanentError, TemporaryError


class ServiceUnreachable(TemporaryError):
    """Error for a connection to the service that failed, broke or timed out."""

    code = "service_unreachable"


class RequestRefused(PermanentError):
    """Error for a request that the service answered with an error; `status` is the HTTP status (4xx or 5xx)."""

    code = "request_refused"

    def __init__(self, detail: str, *, status: int) -> None:
        """Store the service's error text and the HTTP status."""
        super().__init__(detail)
        self.status = status


class TurnWaits(PermanentError):
    """Error for a turn that waits for something from outside and cannot be asked about here."""

    code = "turn_waits"


class UnexpectedReply(PermanentError):
    """Error for a reply that this service, in this version, would not send."""

    code = "unexpected_reply"


class ModelCheckFailed(PermanentError):
    """Error for an agent whose model cannot be used, or refuses the tools that the agent has."""

    code = "model_check_failed"


def with_provider_message(text: str, said: str) -> str:
    """Return an error's text with what the model's provider said, if the service told it."""
    return f"{text.rstrip('.')}. The provider said: {said}" if said else text


class AnswerFailed(PermanentError):
    """Error for a turn that ended without an answer."""

    code = "answer_failed"
