"""What the offline model says: greetings, tool calls, quotes from what it sees, summaries by extraction."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from throughline.context.assemble import SUMMARY_TAG, SUMMARY_TITLE
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.llm.offline_extract import Sentence, best_sentences, split_sentences

INTRODUCTION = (
    "I am Throughline's offline model: I need no key, run inside the service, and can only quote what I see and call "
    "tools."
)
MAX_RESULT = 2000
QUESTION_CHARACTERS = 2000
"""So much of a question is searched for a wish to know the time or to calculate: a longer one is a paste."""


_CALL = re.compile(r"^\s*/call\s+([\w.:-]+)\s*(.*)$", re.DOTALL)
_TIME = re.compile(
    r"\bwhat(?:'s| is| was)?\s+(?:the\s+)?(?:current\s+)?(?:time|date|day)\b|\bwhat time is it\b"
    r"|\bcurrent (?:time|date)\b|\bwhich day is\b",
    re.IGNORECASE,
)
_NUMBER = r"\d[\d.\s()]*+"
_ARITHMETIC = re.compile(
    rf"(?P<whole>[-+(]*+\s*+{_NUMBER}(?:(?:\*\*|[-+*/%^×÷])[-+\s(]*+{_NUMBER})++)"
    rf"|[-+(]*+\s*+{_NUMBER}|[-+(]++\s*+|\s++"
)
"""An expression, or else a number, signs or blanks that begin none: they are passed over as a whole, not one by one."""

_GREETING = re.compile(r"^\W*(?:hi|hello|hey|good (?:morning|evening|day)|hallo|servus|moin)\b.{0,40}$", re.IGNORECASE)
_WHO = re.compile(r"\b(?:who|what) are you\b|\bare you (?:an? )?(?:ai|bot|model|human)\b", re.IGNORECASE)
_SIGNS = str.maketrans({"×": "*", "÷": "/"})


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer: a text, or calls of tools."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def reply_to(prompt: Prompt, tools: Sequence[ToolSpec]) -> Reply:
    """Return the reply to the last message of the prompt; the same prompt always gets the same reply."""
    results = _tool_results(prompt.messages)
    if results:
        return Reply(_report(results))
    question = next((text_of(m.content) for m in reversed(prompt.messages) if m.role is Role.USER), "")
    call = _wanted_call(question, tools, serial=len(prompt.messages))
    if isinstance(call, ToolCall):
        return Reply(calls=(call,))
    return Reply(call or _answer(question, prompt))


def _tool_results(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """The tool messages at the very end, in order."""
    results: list[PromptMessage] = []
    for message in reversed(messages):
        if message.role is not Role.TOOL:
            break
        results.insert(0, message)
    return results


def _report(results: Sequence[PromptMessage]) -> str:
    lines = [f"{result.name or 'The tool'} says: {_shortened(text_of(result.content))}" for result in results]
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}… ({len(text)} characters in all)"


def _wanted_call(question: str, tools: Sequence[ToolSpec], serial: int) -> ToolCall | str | None:
    """The call the question asks for, or a sentence on why it cannot be made, or None where it asks for none."""
    offered = {tool.name: tool for tool in tools}
    explicit = _CALL.match(question)
    if explicit:
        return _explicit_call(explicit, offered, serial)
    head = question[:QUESTION_CHARACTERS]
    if "current_time" in offered and _TIME.search(head):
        return _call("current_time", json.dumps(_time_arguments(offered["current_time"])), serial)
    expression = _first_expression(head)
    if "calculator" in offered and expression:
        field = _first_field(offered["calculator"], "expression")
        return _call("calculator", json.dumps({field: expression.translate(_SIGNS)}), serial)
    return None


def _explicit_call(asked: re.Match[str], offered: dict[str, ToolSpec], serial: int) -> ToolCall | str:
    name, arguments = asked.group(1), asked.group(2).strip() or "{}"
    return _call(name, arguments, serial) if name in offered else _not_offered(name, offered)


def _first_expression(text: str) -> str:
    """Return the first piece of arithmetic in `text`, '' where there is none."""
    found = (match["whole"] for match in _ARITHMETIC.finditer(text))
    return next((whole.strip() for whole in found if whole), "")


def _call(name: str, arguments: str, serial: int) -> ToolCall:
    # The number of messages seen makes the id unique in the session as far as the prompt grows.
    return ToolCall(f"call_offline_{serial}", name, arguments)


def _not_offered(name: str, offered: dict[str, ToolSpec]) -> str:
    return f"No tool named {name} is offered to me. Offered: {', '.join(sorted(offered)) or 'none'}."


def _time_arguments(tool: ToolSpec) -> dict[str, str]:
    return {name: "UTC" for name in _required(tool) if "zone" in name or name == "tz"}


def _first_field(tool: ToolSpec, default: str) -> str:
    return next(iter(_required(tool)), default)


def _required(tool: ToolSpec) -> list[str]:
    required = tool.parameters.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _answer(question: str, prompt: Prompt) -> str:
    seen = _seen(prompt)
    if _WHO.search(question):
        return f"{INTRODUCTION} {seen}"
    if _GREETING.match(question):
        return f"Hello! {INTRODUCTION} {seen} Set DEFAULT_LLM and a key for a model that can reason."
    quotes = best_sentences(question, list(_visible(prompt)))
    if not quotes:
        return f"{INTRODUCTION} {seen} Nothing in them shares a word with your message."
    lines = "\n".join(f"- {quote.speaker}: {quote.text}" for quote in quotes)
    return f"{INTRODUCTION} {seen} What fits your message best:\n{lines}"


def _seen(prompt: Prompt) -> str:
    earlier = len(prompt.messages) - 1
    noun = "message" if earlier == 1 else "messages"
    summary = " and a summary of what came before" if _summary(prompt) else ""
    return f"I see {earlier} earlier {noun}{summary}."


def _visible(prompt: Prompt) -> Iterator[Sentence]:
    """The sentences of summary and conversation, oldest first, without my own stock phrases and the question."""
    for text in split_sentences(_summary(prompt)):
        yield Sentence("the summary", text.removeprefix("- "))
    for message in prompt.messages[:-1]:
        text = text_of(message.content)
        if message.role is Role.ASSISTANT and INTRODUCTION in text:
            continue
        for sentence in split_sentences(text):
            yield Sentence(_speaker(message), sentence)


def _summary(prompt: Prompt) -> str:
    """The framed summary in the system message, '' without one."""
    _, _, after = prompt.system.partition(f"{SUMMARY_TITLE}\n")
    _, _, inside = after.partition(f"<{SUMMARY_TAG}>\n")
    return inside.rpartition(f"</{SUMMARY_TAG}>")[0]


def _speaker(message: PromptMessage) -> str:
    match message.role:
        case Role.USER:
            return "you said"
        case Role.ASSISTANT:
            return "I said"
        case Role.TOOL:
            return f"{message.name or 'a tool'} said"
