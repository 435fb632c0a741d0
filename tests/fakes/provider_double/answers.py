"""What the double says when nobody told it what to say, and how a step becomes a completion."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from fakes.provider_double.chat_request import ChatRequest
from fakes.provider_double.counting import texts_of
from fakes.provider_double.json_types import Json
from fakes.provider_double.script import Failure, ScriptedCall, ScriptStep
from fakes.provider_double.wire import Completion

SUMMARY_TOKENS = 400
"""A summary is at most this long, or 0.6 of what the request allows."""

LINE_CHARACTERS = 110
ECHO_CHARACTERS = 60
_RECORD_LINE = re.compile(r"^\[#(\d+) (\w[^\]\n]*)\] ?(.*)", re.MULTILINE)
_SUMMARY_LINE = re.compile(r"^- (\S.* \[#\d+\])$", re.MULTILINE)
_BROKEN_CALL = ScriptedCall("call_broken", "calculator", '{"expression": "1 + ')


def default_step(request: ChatRequest, *, is_summary: bool) -> ScriptStep:
    """Return the answer for a request nobody wrote a step for: the same one for the same request."""
    return ScriptStep(text=summarise(request) if is_summary else echo(request.messages))


def echo(messages: Sequence[Json]) -> str:
    """Return an answer that shows which message it answers and how many it was shown."""
    asked = next((message for message in reversed(messages) if message["role"] == "user"), None)
    text = " ".join(texts_of(asked)) if asked else ""
    return f"Answer {len(messages)} to: {text[:ECHO_CHARACTERS]}"


def summarise(request: ChatRequest) -> str:
    """Return an honest summary: lines of the record with their positions, evenly chosen, and never too long."""
    record = "\n".join(" ".join(texts_of(message)) for message in request.messages if message["role"] == "user")
    return summary_of(record, request.max_tokens, request.model.counting.count)


def summary_of(record: str, max_tokens: int | None, count: Callable[[str], int]) -> str:
    """Return a summary of the record lines in `record`, whatever wire it came over."""
    lines = _SUMMARY_LINE.findall(record) + [_told(line) for line in _RECORD_LINE.finditer(record)]
    lines = lines or [line[:LINE_CHARACTERS] for line in record.splitlines()]
    room = min(SUMMARY_TOKENS, int(0.6 * (max_tokens or SUMMARY_TOKENS)), count(record) // 4)
    parts = ["## State"]
    used = count(parts[0])
    for line in _evenly(lines, max(room // 40, 1)):
        part = f"- {line}"
        used += count(part) + 1
        if used > room and len(parts) > 1:
            break
        parts.append(part)
    return "\n".join(parts)


def _told(line: re.Match[str]) -> str:
    """Return a line of the record as a summary tells it: what was said and by whom, with its position behind it."""
    return f"{line[2]}: {line[3][:LINE_CHARACTERS].rstrip()} [#{line[1]}]"


def complete(step: ScriptStep, request: ChatRequest, number: int) -> Completion:
    """Return the step as a completion, cut at the request's `max_tokens` as the real one would."""
    step = with_failure(step)
    count = request.model.counting.count
    text, is_cut = limited(step.text, request.max_tokens, count)
    answered = count(text) + sum(count(call.name) + count(call.arguments) for call in step.calls)
    natural = "length" if is_cut else "tool_calls" if step.calls else "stop"
    return Completion(
        id=f"chatcmpl-double-{number}",
        model=request.model.name,
        text=text,
        calls=step.calls,
        thinking=step.thinking,
        finish_reason=step.finish_reason or natural,
        usage={
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": answered,
            "total_tokens": request.prompt_tokens + answered,
        },
    )


def with_failure(step: ScriptStep) -> ScriptStep:
    """Return the step with what a failure inside a whole answer makes of it."""
    match step.failure:
        case Failure.EMPTY:
            return replace(step, text="", calls=())
        case Failure.BAD_TOOL_JSON:
            calls = tuple(replace(call, arguments=call.arguments[:-1]) for call in step.calls)
            return replace(step, calls=calls or (_BROKEN_CALL,))
        case _:
            return step


def limited(text: str, limit: int | None, count: Callable[[str], int]) -> tuple[str, bool]:
    """Return the text cut to `limit` tokens, and whether it had to be cut."""
    if limit is None or len(text) <= limit // 3 or count(text) <= limit:
        return text, False
    shown = text[: len(text) * limit // count(text)]
    while count(shown) > limit:
        shown = shown[: len(shown) * 9 // 10]
    return shown, True


def _evenly(lines: Sequence[str], most: int) -> Sequence[str]:
    if len(lines) <= most:
        return lines
    return [lines[index * len(lines) // most] for index in range(most)]
