"""What the offline model says: tool calls that are plainly asked for, their results, and a quote from what it sees."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from throughline.context.assemble import SUMMARY_TAG, SUMMARY_TITLE
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Prompt, ToolSpec
from throughline.llm.offline_summary import INTRODUCTION, sentences_of
from throughline.llm.offline_sums import sum_in

ABOUT = f"{INTRODUCTION}: I need no key, run inside the service, and can only quote what I see and call tools."
ADVICE = "Set DEFAULT_LLM and a key for a model that can reason."
MAX_RESULT = 2000
QUESTION_CHARACTERS = 2000
"""So much of a question is searched for a wish to know the time: a longer one is a paste."""

LEAST_WORD = 4
"""Shorter words are not what a question is about."""

_CALL = re.compile(r"^\s*/call\s+([\w.:-]+)\s*(.*)$", re.DOTALL)
_TIME = re.compile(
    r"\b(?:what|which)(?:['’]?s| is)? (?:the )?(?:current )?(?:time|date|day)\b"
    r"(?: (?:is it|is today|today|now|right now|it is)\b|(?=[\s?!.]*+\Z))",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_SPEAKERS = {Role.USER: "you said", Role.ASSISTANT: "I said", Role.TOOL: "a tool said"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer: a text, or calls of tools."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def reply_to(prompt: Prompt, tools: Sequence[ToolSpec]) -> Reply:
    """Return the reply to the last message of the prompt; the same prompt always gets the same reply."""
    results = list(takewhile(lambda message: message.role is Role.TOOL, reversed(prompt.messages)))
    if results:
        told = [f"{result.name or 'The tool'} says: {_shortened(text_of(result.content))}" for result in results[::-1]]
        return Reply("\n".join(told))
    question = next((text_of(m.content) for m in reversed(prompt.messages) if m.role is Role.USER), "")
    offered = {tool.name for tool in tools}
    name, arguments = _wanted_call(question, offered)
    if name and name not in offered:
        return Reply(f"No tool named {name} is offered to me. Offered: {', '.join(sorted(offered)) or 'none'}.")
    if name:  # the number of messages makes the id unique in the session as far as the prompt grows
        return Reply(calls=(ToolCall(f"call_offline_{len(prompt.messages)}", name, arguments),))
    return Reply(_answer(question, prompt))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}… ({len(text)} characters in all)"


def _wanted_call(question: str, offered: set[str]) -> tuple[str, str]:
    """Return the tool that the question asks for and its arguments, twice nothing where it asks for none."""
    explicit = _CALL.match(question)
    if explicit:
        return explicit[1], explicit[2].strip() or "{}"
    if "current_time" in offered and _TIME.search(question[:QUESTION_CHARACTERS]):
        return "current_time", "{}"
    expression = sum_in(question) if "calculator" in offered else ""
    if expression:
        return "calculator", json.dumps({"expression": expression})
    return "", ""


def _answer(question: str, prompt: Prompt) -> str:
    summary, earlier = _summary(prompt), prompt.messages[:-1]
    seen = f"{len(earlier)} earlier message{'' if len(earlier) == 1 else 's'}"
    seen = f"{ABOUT} I see {seen}{' and a summary of what came before' if summary else ''}."
    visible = [("the summary", summary), *((_SPEAKERS[message.role], text_of(message.content)) for message in earlier)]
    wanted = _words(question)
    said = [(who, sentence) for who, text in visible if ABOUT not in text for sentence in sentences_of(text)]
    weights = [sum(len(word) for word in wanted & _words(text)) for _, text in said]  # longer words say more
    shared, index = max(((weight, index) for index, weight in enumerate(weights)), default=(0, 0))
    if not shared:
        return f"Hello! {seen} {ADVICE}" if not earlier else f"{seen} Nothing in them shares a word with your message."
    return f"{seen} What fits your message best:\n- {said[index][0]}: {said[index][1]}"


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text) if len(word) >= LEAST_WORD}


def _summary(prompt: Prompt) -> str:
    """Return the framed summary in the system message, '' without one."""
    inside = prompt.system.partition(f"{SUMMARY_TITLE}\n")[2].partition(f"<{SUMMARY_TAG}>\n")[2]
    return inside.rpartition(f"</{SUMMARY_TAG}>")[0]
