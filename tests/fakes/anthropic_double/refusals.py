"""What a refused request is answered with: Anthropic's own status, wording and error body."""

from dataclasses import dataclass

from fakes.provider_double.json_types import Json


@dataclass(slots=True)
class Refused(Exception):
    """The request is refused; raised by the checks, rendered by the server."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"

    def body(self) -> Json:
        """Return Anthropic's error body."""
        return {"type": "error", "error": {"type": self.type, "message": self.message}, "request_id": "req_double"}


def too_long(prompt_tokens: int, window_tokens: int) -> Refused:
    """A prompt that is over the window alone."""
    return Refused(f"prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum")


def over_limit(prompt_tokens: int, max_tokens: int, window_tokens: int) -> Refused:
    """A prompt that is over the window together with the answer it allows."""
    return Refused(
        f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {max_tokens} > {window_tokens}, "
        "decrease input length or `max_tokens` and try again"
    )


def missing(path: str) -> Refused:
    """A field that must be there."""
    return Refused(f"{path}: Field required")


def not_a(kind: str, path: str) -> Refused:
    """A value of the wrong JSON type."""
    return Refused(f"{path}: Input should be a valid {kind}")
