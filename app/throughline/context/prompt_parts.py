"""The parts of a prompt: what its tokens are made of, with the text of each part as the model reads it.

The preview holds them, so that pages can show them. They add up to the prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise

from throughline.context import quoted_history, quoted_memories
from throughline.context.calibration import scale
from throughline.context.fit_prompt import MessageVariant, ShownMessage, list_variants
from throughline.context.measure import REPLY_TOKENS, Count, count_system
from throughline.context.summaries.kept_facts_text import FACTS_HEADING, INSTRUCTIONS_HEADING
from throughline.context.view.groups import SUMMARY_TAG
from throughline.context.view.view import View
from throughline.domain.message import text_of
from throughline.domain.prompt import PromptMessage


class PromptPartKind(StrEnum):
    """The kinds of parts, in the order in which a prompt begins with them.

    `SHORTENED`: stubs, messages without their middle, and notes on hidden messages. `NEXT`: the message to be answered,
    with the opening of the answer.
    """

    SYSTEM = "system"
    TOOLS = "tools"
    SUMMARY = "summary"
    FACTS = "facts"
    PINNED = "pinned"
    SHORTENED = "shortened"
    WHOLE = "whole"
    QUOTED = "quoted"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One part of a prompt with its tokens: a `message`, or a part of the system message with its `text`.

    The tools have no text here.
    """

    kind: PromptPartKind
    tokens: int
    text: str = ""
    message: PromptMessage | None = None

    @property
    def shown_text(self) -> str:
        """The text as the model reads it, each tool call on a line behind it. Images are left out."""
        if self.message is None:
            return self.text
        calls = (f"{call.name}({call.arguments})" for call in self.message.tool_calls)
        return "\n".join(part for part in (text_of(self.message.content), *calls) if part)


QUOTING_TITLES = (quoted_history.TITLE, quoted_memories.TITLE)
_SECTIONS = (f"\n{INSTRUCTIONS_HEADING}\n", f"\n{FACTS_HEADING}\n")


def list_parts(view: View) -> tuple[PromptPart, ...]:
    """Return the parts of the view's prompt in their order. Tokens are the model's, and add up to the view's."""
    forms = {shown.position: shown for shown in list_variants(view)}
    messages = (
        _message_part(view, forms, message, tokens) for message, tokens in zip(view.messages, view.counts, strict=True)
    )
    tools = PromptPart(PromptPartKind.TOOLS, view.context_input.tools_tokens)
    parts = [part for part in (*_system_parts(view), tools, *messages) if part.tokens]
    if view.current is None:
        parts.append(PromptPart(PromptPartKind.NEXT, REPLY_TOKENS))
    return _scaled(parts, view.context_input.factor)


def _scaled(parts: Sequence[PromptPart], factor: float) -> tuple[PromptPart, ...]:
    """Return the parts with the model's tokens. Rounded one by one, they would add up to more than the prompt."""
    ends = [scale(tokens, factor) for tokens in accumulate((part.tokens for part in parts), initial=0)]
    sizes = (after - before for before, after in pairwise(ends))
    return tuple(replace(part, tokens=tokens) for part, tokens in zip(parts, sizes, strict=True))


def _system_parts(view: View) -> Iterator[PromptPart]:
    """Yield the parts of the system message; what stands around the kept facts belongs to the summary."""
    prompt, count = view.context_input.system_prompt.strip(), view.context_input.count
    system = count_system(prompt, count)
    yield PromptPart(PromptPartKind.SYSTEM, system, prompt)
    before, facts, after = _around_facts(view.system[len(prompt) :].strip())
    inside = _counted(facts, count), _counted(after, count)
    yield PromptPart(PromptPartKind.SUMMARY, view.system_tokens - system - sum(inside), before)
    yield PromptPart(PromptPartKind.FACTS, inside[0], facts)
    yield PromptPart(PromptPartKind.SUMMARY, inside[1], after)


def _counted(text: str, count: Count) -> int:
    return count(text) if text else 0


def _around_facts(text: str) -> tuple[str, str, str]:
    """Return the text before the instructions and facts of a summary, these, and the text after them."""
    starts = [at for at in map(text.find, _SECTIONS) if at >= 0]
    end = text.rfind(f"\n</{SUMMARY_TAG}>")
    if not starts or end < min(starts):
        return text, "", ""
    return text[: min(starts)].strip(), text[min(starts) : end].strip(), text[end:].strip()


def _message_part(view: View, forms: Mapping[int, ShownMessage], message: PromptMessage, tokens: int) -> PromptPart:
    if message is view.current:
        return PromptPart(PromptPartKind.NEXT, tokens + REPLY_TOKENS, message=message)
    return PromptPart(_kind(forms, message), tokens, message=message)


def _kind(forms: Mapping[int, ShownMessage], message: PromptMessage) -> PromptPartKind:
    shown = None if message.position is None else forms.get(message.position)
    if shown is not None:
        whole = PromptPartKind.WHOLE if shown.form is MessageVariant.WHOLE else PromptPartKind.SHORTENED
        return PromptPartKind.PINNED if shown.pinned else whole
    is_quoting = isinstance(message.content, str) and message.content.startswith(QUOTING_TITLES)
    return PromptPartKind.QUOTED if is_quoting else PromptPartKind.SHORTENED
