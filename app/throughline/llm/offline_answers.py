"""Answers of the offline model: explicitly requested tool calls, their results, and quotes from its prompt."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from throughline.context.assemble import SUMMARY_TAG, SUMMARY_TITLE
from throughline.context.delimiters import undelimited
from throughline.context.recall_hints import SEARCH, TAG
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Prompt, ToolSpec
from throughline.llm.offline_quotes import best_quote, question_in, words_of
from throughline.llm.offline_sentences import INTRODUCTION
from throughline.llm.offline_sums import sum_in

ABOUT = f"{INTRODUCTION}: I need no key, run inside the service, and can only quote what I see and call tools."
ADVICE = "Set DEFAULT_LLM and a key for a model that can reason."
MAX_RESULT = 2000
QUESTION_CHARACTERS = 2000
"""Number of characters of a question that are searched for a request for the time; a longer one is a paste."""

_CALL = re.compile(r"^\s*/call\s+([\w.:-]+)\s*(.*)$", re.DOTALL)
_TIME = re.compile(
    r"\b(?:what|which)(?:['’]?s| is)? (?:the )?(?:current )?(?:time|date|day)\b"
    r"(?: (?:is it|is today|today|now|right now|it is)\b|(?=[\s?!.]*+\Z))",
    re.IGNORECASE,
)
_SPEAKERS = {Role.USER: "you said", Role.ASSISTANT: "I said", Role.TOOL: "a tool said"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The offline model's answer: a text, or tool calls."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def reply_to(prompt: Prompt, tools: Sequence[ToolSpec]) -> Reply:
    """Return the reply to the last message of the prompt; the same prompt always gets the same reply.

    If the prompt does not contain the answer and `search_history` is offered, the reply is one call of that tool.
    """
    asked = max((at for at, message in enumerate(prompt.messages) if message.role is Role.USER), default=0)
    message = text_of(prompt.messages[asked].content) if prompt.messages else ""
    results = [result for result in prompt.messages[asked + 1 :] if result.role is Role.TOOL]
    has_searched = any(result.name == SEARCH for result in results) and not _CALL.match(message)
    if results and not has_searched:
        return Reply("\n".join(f"{one.name or 'The tool'} says: {_shortened(text_of(one.content))}" for one in results))
    offered = {tool.name for tool in tools}
    name, arguments = ("", "") if has_searched else _wanted_call(message, offered)
    if name and name not in offered:
        return Reply(f"No tool named {name} is offered to me. Offered: {', '.join(sorted(offered)) or 'none'}.")
    said = "" if name else _answer(prompt, asked, may_search=SEARCH in offered and not has_searched)
    if not name and not said:
        name, arguments = SEARCH, json.dumps({"query": _query(message)}, ensure_ascii=False)
    if name:  # the number of messages makes the id unique while the prompt grows
        return Reply(calls=(ToolCall(f"call_offline_{len(prompt.messages)}", name, arguments),))
    return Reply(said)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}… ({len(text)} characters in all)"


def _wanted_call(question: str, offered: set[str]) -> tuple[str, str]:
    """Return the tool that the question asks for and its arguments; two empty strings if it asks for none."""
    explicit = _CALL.match(question)
    if explicit:
        return explicit[1], explicit[2].strip() or "{}"
    if "current_time" in offered and _TIME.search(question[:QUESTION_CHARACTERS]):
        return "current_time", "{}"
    expression = sum_in(question) if "calculator" in offered else ""
    if expression:
        return "calculator", json.dumps({"expression": expression})
    return "", ""


def _answer(prompt: Prompt, asked: int, *, may_search: bool) -> str:
    """Return the answer to the message at `asked`; '' if the history has to be searched for it first."""
    message = text_of(prompt.messages[asked].content) if prompt.messages else ""
    question = question_in(message[:QUESTION_CHARACTERS])
    is_about = bool(words_of(question))
    quote = best_quote(question, _shown(prompt, asked)) if is_about else None
    if quote and quote.answers:
        return f"What fits your message best:\n- {quote.who}: {quote.sentence}\n\n{_seen(prompt, asked)}"
    if is_about and may_search:
        return ""
    if not is_about and (question or not asked):
        return f"{'' if question else _greeting(message)}{ABOUT} {ADVICE}"
    if not is_about:
        return f"Noted. {_seen(prompt, asked)}"
    has_searched = len(prompt.messages) > asked + 1
    where = f"what I see{', and nothing was found in the history that gives one' if has_searched else ''}"
    closest = f" What comes closest:\n- {quote.who}: {quote.sentence}\n\n" if quote else " "
    return f"I find no answer in {where}.{closest}{_seen(prompt, asked)} {ADVICE}"


def _greeting(message: str) -> str:
    """Return the beginning of the answer to a first message that asks for nothing: a greeting, or a note."""
    return "Noted. " if words_of(message[:QUESTION_CHARACTERS]) else "Hello! "


def _query(message: str) -> str:
    return " ".join(words_of(question_in(message[:QUESTION_CHARACTERS])).values())


def _seen(prompt: Prompt, asked: int) -> str:
    summary = " and a summary of what came before" if _summary(prompt) else ""
    return f"{INTRODUCTION}. I see {asked} earlier message{'' if asked == 1 else 's'}{summary}."


def _shown(prompt: Prompt, asked: int) -> Iterator[tuple[str, str]]:
    """Yield speaker and text of all that the prompt shows, without the message at `asked` and the model's answers."""
    yield "the summary", _summary(prompt)
    for at, message in enumerate(prompt.messages):
        text = text_of(message.content)
        if message.role is Role.TOOL and message.name == SEARCH:
            lines = undelimited(TAG, text).splitlines()
            yield from (("the history", line) for line in lines if INTRODUCTION not in line)
        elif at != asked and INTRODUCTION not in text:
            yield _SPEAKERS[message.role], text


def _summary(prompt: Prompt) -> str:
    """Return the summary from the system message, '' without one."""
    inside = prompt.system.partition(f"{SUMMARY_TITLE}\n")[2].partition(f"<{SUMMARY_TAG}>\n")[2]
    return inside.rpartition(f"</{SUMMARY_TAG}>")[0]
