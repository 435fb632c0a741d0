"""What a refused request is answered with: OpenAI's own status, wording and error body."""

from dataclasses import dataclass

from fakes.provider_double.json_types import Json


@dataclass(slots=True)
class Refused(Exception):
    """The request is refused; raised by the checks, rendered by the server.

    `raw` is the body that a server other than OpenAI's sends in its own shape: JSON, or text.
    """

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    raw: Json | str | None = None

    def body(self) -> Json:
        """Return OpenAI's error body, or the other server's."""
        if isinstance(self.raw, dict):
            return self.raw
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def too_long(window: int, prompt: tuple[int, int], max_tokens: int | None) -> Refused:
    """A prompt over the window, `prompt` being its tokens in messages and in functions, with OpenAI's numbers."""
    in_messages, in_functions = prompt
    total = in_messages + in_functions
    functions = f", {in_functions} in the functions" if in_functions else ""
    if max_tokens is None or total > window:
        parts = f" ({in_messages} in the messages{functions})" if functions else ""
        words = "messages or functions" if functions else "messages"
        said = f"your messages resulted in {total} tokens{parts}. Please reduce the length of the {words}."
    else:
        joint = ", and " if functions else ", "
        parts = f"({in_messages} in the messages{functions}{joint}{max_tokens} in the completion)"
        words = "messages, functions, or completion" if functions else "messages or completion"
        said = f"you requested {total + max_tokens} tokens {parts}. Please reduce the length of the {words}."
    return Refused(
        f"This model's maximum context length is {window} tokens. However, {said}",
        param="messages",
        code="context_length_exceeded",
    )
