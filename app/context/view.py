"""The view: what a prompt is about to show, group by group, with the tokens of each. Rungs turn one view into another.

All tokens here are our own counts; the limit they are held against is already divided by the factor.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from app.context.assemble import build_prompt_messages, build_system
from app.context.groups import Group, group_messages
from app.context.measure import REPLY_TOKENS, count_message, count_system, tokens_of
from app.context.plan import ContextInput
from app.context.repair import is_valid, repair_messages
from app.context.shrink import cap_output
from app.domain.message import Message, Role
from app.domain.prompt import Prompt, PromptMessage


class Form(StrEnum):
    """How a stored message after the cursor appears in one prompt."""

    WHOLE = "whole"
    TRUNCATED = "truncated"
    FOLDED = "folded"
    TRIMMED = "trimmed"
    LEFT_OUT = "left_out"
    """Not sendable: a result without a call, a second result, an empty answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """A group as it is shown now; `counts` runs beside `messages`."""

    messages: tuple[PromptMessage, ...]
    counts: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """The tokens of the whole group."""
        return sum(self.counts)

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the stored messages in the group."""
        return tuple(message.position for message in self.messages if message.position is not None)


@dataclass(frozen=True, slots=True)
class Note:
    """A short text in the user's place that stands for messages which are not shown; empty where none is needed."""

    text: str = ""
    tokens: int = 0
    positions: tuple[int, ...] = ()

    @property
    def messages(self) -> tuple[PromptMessage, ...]:
        """The note as a message, or nothing."""
        return (PromptMessage(Role.USER, self.text),) if self.text else ()


NO_NOTE = Note()


@dataclass(frozen=True, slots=True)
class View:
    """A prompt by its parts: the system message, what came before, the user's current message, the running steps.

    `trimmed` stands for messages left out before `past`, `folded` for running steps left out after `current`;
    `whole_current` is the user's message before anything was taken from it.
    """

    inp: ContextInput
    summary: str
    system_tokens: int
    past: tuple[Part, ...]
    current: Part | None
    running: tuple[Part, ...]
    trimmed: Note = NO_NOTE
    folded: Note = NO_NOTE
    whole_current: Part | None = None

    @property
    def tokens(self) -> int:
        """The tokens of the whole prompt, tools included."""
        return self.fixed_tokens + sum(part.tokens for part in self.parts)

    @property
    def fixed_tokens(self) -> int:
        """The tokens of all but the groups."""
        return self.system_tokens + self.inp.tools_tokens + REPLY_TOKENS + self.trimmed.tokens + self.folded.tokens

    @property
    def parts(self) -> tuple[Part, ...]:
        """All groups that are shown, in order."""
        current = () if self.current is None else (self.current,)
        return (*self.past, *current, *self.running)

    @property
    def prompt(self) -> Prompt:
        """The prompt the view stands for."""
        current = () if self.current is None else self.current.messages
        return build_prompt_messages(
            self.inp.system_prompt,
            (
                *self.trimmed.messages,
                *(message for part in self.past for message in part.messages),
                *current,
                *self.folded.messages,
                *(message for part in self.running for message in part.messages),
            ),
            summary=self.summary,
            summarized_count=self.inp.summary_through_position,
        )

    def with_summary(self, summary: str) -> "View":
        """Return the view with another summary text, its system message counted anew."""
        return replace(
            self, summary=summary, system_tokens=count_system(system_text(self.inp, summary), self.inp.count)
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """All messages in sendable form with their counts, before any grouping."""

    messages: tuple[PromptMessage, ...]
    counts: tuple[int, ...]
    current: PromptMessage | None


def list_messages(inp: ContextInput) -> Listed:
    """Return what is to be shown if all of it fits: valid for strict providers, huge tool outputs capped."""
    cap, name, count = inp.policy.prune.max_output_bytes, inp.counter_name, inp.count
    messages: list[PromptMessage] = []
    counts: list[int] = []
    for row in _stored(inp):
        message = _as_shown(row, cap)
        is_stored_count = message.content is row.content and row.counter == name and row.token_count > 0
        messages.append(message)
        counts.append(row.token_count if is_stored_count else count_message(message, count))
    if inp.user is not None:
        messages.append(PromptMessage(Role.USER, inp.user.content))
        counts.append(tokens_of(inp.user, name, count))
    current = _find_current(inp, messages)
    if is_valid(messages):
        return Listed(tuple(messages), tuple(counts), current)
    return _repaired(inp, messages, counts, current)


def open_view(inp: ContextInput, listed: Listed, system_tokens: int) -> View:
    """Return the view that shows everything, grouped, for the rungs to work on."""
    counts = {id(message): tokens for message, tokens in zip(listed.messages, listed.counts, strict=True)}
    groups = group_messages(listed.messages)
    parts = tuple(_part(group, counts) for group in groups)
    at = next((index for index, group in enumerate(groups) if group.head is listed.current), None)
    if at is None:  # no turn is running: the last group is what the model would answer to
        at = max(len(parts) - 1, 0)
        return View(inp, inp.summary, system_tokens, parts[:at], None, parts[at:])
    current = parts[at]
    return View(inp, inp.summary, system_tokens, parts[:at], current, parts[at + 1 :], whole_current=current)


def system_text(inp: ContextInput, summary: str) -> str:
    """Return the system message with this summary."""
    return build_system(inp.system_prompt, summary, inp.summary_through_position)


def _stored(inp: ContextInput) -> tuple[Message, ...]:
    kept = inp.current_behind_cursor
    return inp.rows if kept is None else (kept, *inp.rows)


def _as_shown(row: Message, max_output_bytes: int) -> PromptMessage:
    if row.role is Role.USER:
        return PromptMessage(Role.USER, row.content, position=row.position)
    content = row.content
    if row.role is Role.TOOL and (len(content) * 4 > max_output_bytes or not isinstance(content, str)):
        content = cap_output(content, max_output_bytes, row.position)
    return PromptMessage(row.role, content, row.tool_calls, row.tool_call_id, row.name, row.position)


def _find_current(inp: ContextInput, messages: list[PromptMessage]) -> PromptMessage | None:
    if inp.user is not None:
        return messages[-1]
    current = inp.current
    if current is None:
        return None
    return next((message for message in reversed(messages) if message.position == current.position), None)


def _repaired(
    inp: ContextInput, messages: list[PromptMessage], counts: list[int], current: PromptMessage | None
) -> Listed:
    """Repair the messages; only those that changed are counted anew."""
    known = {id(message): tokens for message, tokens in zip(messages, counts, strict=True)}
    repaired = repair_messages(messages)
    tokens = tuple(
        known[id(message)] if id(message) in known else count_message(message, inp.count) for message in repaired
    )
    return Listed(repaired, tokens, _current_in(repaired, current))


def _current_in(repaired: tuple[PromptMessage, ...], current: PromptMessage | None) -> PromptMessage | None:
    """The user's message may have got a placeholder for its text: it is found by its place then."""
    if current is None:
        return None
    for message in reversed(repaired):
        if message is current or (message.role is Role.USER and message.position == current.position):
            return message
    return None


def _part(group: Group[PromptMessage], counts: dict[int, int]) -> Part:
    messages = group.messages
    return Part(messages, tuple(counts[id(message)] for message in messages))
