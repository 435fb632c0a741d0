"""The list of a prompt's messages, made from the rows and the view state by the class `MessageList`.

`show` in `view.py` uses it and adds the rest of the prompt. All tokens here are our own counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from throughline.context.identity_cache import ComputedCache, IdentityCache
from throughline.context.measure import count_message, tokens_of
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import group_messages
from throughline.context.view.placeholder_texts import (
    STUB_WORTH_TOKENS,
    RecallHints,
    fold_note,
    left_out_note,
    stub,
    trim_note,
    widest_stub,
)
from throughline.context.view.shrink_message import cap_output, shrink_message
from throughline.context.view.view_state import PENDING, ViewState, range_at
from throughline.domain.message import Message, NewMessage, Role
from throughline.domain.prompt import PromptMessage


def pinned_positions(context_input: ContextInput) -> frozenset[int]:
    """Return the positions of all messages whose group contains a pinned one."""
    rows = context_input.rows
    if not context_input.pinned and not any(row.pinned for row in rows):
        return frozenset()
    groups = group_messages(sorted((*context_input.shown_before_cursor, *rows), key=_position))
    return frozenset(
        message.position for group in groups if any(row.pinned for row in group.messages) for message in group.messages
    )


def hidden_through(context_input: ContextInput, state: ViewState) -> int:
    """Return the position up to which unpinned messages after the cursor are hidden, because trimmed or not loaded.

    It is at most the cursor (or 0) if none is hidden.
    """
    rows = context_input.rows
    not_loaded = rows[0].position - 1 if rows and context_input.has_gap else 0
    return max(state.trimmed_through_position, not_loaded)


class MessageList:
    """Builder of the messages of a prompt and their token counts, in order.

    The order is: pinned messages among the hidden ones, a note about the hidden ones, the other messages, and the
    user's message that is not stored yet.
    """

    def __init__(self, context_input: ContextInput, state: ViewState, pinned: frozenset[int]) -> None:
        """Create an empty list; `list_all` fills it. `pinned` comes from `pinned_positions`."""
        self.context_input = context_input
        self.state = state
        self.pinned = pinned
        self.edge = hidden_through(context_input, state)
        self.messages: list[PromptMessage] = []
        self.counts: list[int] = []
        self.current: PromptMessage | None = None
        self._current_row = context_input.current
        self._stub_counts: dict[str, int] = {}
        self._user_cuts = dict(state.user_cuts)

    def list_all(self) -> None:
        """Fill `messages`, token `counts`, and `current`: the message that the turn answers, None between turns."""
        hidden, rows = self._divided(self.context_input.rows)
        for row in sorted(filter(self._stays, (*self.context_input.shown_before_cursor, *hidden)), key=_position):
            self._add(row)
        self._add_note(self._gap_note())
        self._add_rows(rows)
        if self.context_input.user is not None:
            self._add_pending(self.context_input.user)

    def _divided(self, rows: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """Return the rows up to the edge, which are hidden unless pinned or current, and the rows after it."""
        if self.edge <= self.context_input.summary_through_position:
            return (), rows
        hidden = tuple(row for row in rows if row.position <= self.edge)
        return hidden, tuple(row for row in rows if row.position > self.edge)

    def _add_rows(self, rows: Iterable[Message]) -> None:
        is_truncated = self.state.truncated_through_position > self.context_input.summary_through_position
        if self.state.left_out or self.state.folded:
            self._add_with_ranges(rows)
        elif self.pinned or self._user_cuts or is_truncated:
            for row in rows:
                self._add(row)
        else:
            self._add_as_stored(rows)

    def _stays(self, row: Message) -> bool:
        return row.position in self.pinned or row is self._current_row

    def _add_with_ranges(self, rows: Iterable[Message]) -> None:
        """Add the rows. Left-out ranges are omitted without a note here; each folded range becomes one note."""
        cursor = self.context_input.summary_through_position
        noted: set[int] = set()
        for row in rows:
            if self._stays(row):
                self._add(row)
                continue
            fold = range_at(self.state.folded, row.position)
            if fold is not None:
                if fold[0] not in noted:
                    noted.add(fold[0])
                    first = max(fold[0], cursor + 1, self.edge + 1)
                    self._add_note(fold_note(first, fold[1], self.context_input.recall))
            elif not self.state.is_left_out(row.position):
                self._add(row)

    def _gap_note(self) -> str:
        cursor, hint = self.context_input.summary_through_position, self.context_input.recall
        start = 1 if self.context_input.summary and not self._shows_summary() else cursor + 1
        if self.edge > cursor or start <= cursor:
            return trim_note(start, max(self.edge, cursor), hint)
        ranges = [pair for pair in self.state.left_out if pair[1] > cursor]
        if not ranges:
            return ""
        number = sum(last - max(first, cursor + 1) + 1 for first, last in ranges)
        return left_out_note(max(ranges[0][0], cursor + 1), ranges[-1][1], number, hint)

    def _shows_summary(self) -> bool:
        return self.state.summary_to_tokens != 0

    def _add_note(self, text: str) -> None:
        if text and not self.state.without_notes:
            note = PromptMessage(Role.USER, text)
            self._append(note, count_message(note, self.context_input.count))

    def _append(self, message: PromptMessage, tokens: int) -> None:
        self.messages.append(message)
        self.counts.append(tokens)

    def _add(self, row: Message) -> None:
        message, tokens = self._as_shown(row)
        if row.position in self.pinned:
            message, tokens = self._cut(message, tokens, self._pin_level(row.position))
        elif row.position in self._user_cuts:
            message, tokens = self._cut(message, tokens, self._user_cuts[row.position])
        elif row is not self._current_row:
            message, tokens = self._cut(message, tokens, self.state.truncated_to(row.position))
        if row is self._current_row:
            self.current = message
        self._append(message, tokens)

    def _pin_level(self, position: int) -> int | None:
        most = self.state.pins_to_tokens
        return None if most is None else self._user_cuts.get(position, most)

    def _add_as_stored(self, rows: Iterable[Message]) -> None:
        """Add rows as `_add` does, for the case that none is cut or pinned: by far the most frequent, so it is fast."""
        counter_name, pruned = self.context_input.counter_name, self.state.pruned_through_position
        most = self.context_input.policy.prune.max_output_bytes // 4
        messages, counts, as_stored = self.messages.append, self.counts.append, _stored.of
        for row in rows:
            role, content, tokens = row.role, row.content, row.token_count
            is_counted = tokens > 0 and row.counter == counter_name
            if not is_counted or row is self._current_row or row.reasoning is not None:
                self._add(row)
            elif role is not Role.TOOL or (row.position > pruned and type(content) is str and len(content) <= most):
                messages(as_stored(row))
                counts(tokens)
            elif row.position <= pruned and tokens > STUB_WORTH_TOKENS:
                self._append(*self._stub(row))
            else:
                self._add(row)

    def _add_pending(self, user: NewMessage) -> None:
        message = PromptMessage(Role.USER, user.content)
        tokens = tokens_of(user, self.context_input.counter_name, self.context_input.count)
        self.current, tokens = self._cut(message, tokens, self._user_cuts.get(PENDING))
        self._append(self.current, tokens)

    def _as_shown(self, row: Message) -> tuple[PromptMessage, int]:
        if row.role is Role.TOOL:
            return self._output(row)
        message = _stored.of(row)
        is_as_counted = not row.tool_calls and row.tool_call_id is None and row.name is None
        if row.role is Role.USER and not is_as_counted:
            return message, count_message(message, self.context_input.count)
        return message, self._stored_count(row)

    def _output(self, row: Message) -> tuple[PromptMessage, int]:
        if row.position <= self.state.pruned_through_position and row.position not in self.pinned:
            tokens = self._stored_count(row)
            if tokens > STUB_WORTH_TOKENS:
                return self._stub(row)
        max_bytes, content = self.context_input.policy.prune.max_output_bytes, row.content
        if row.position not in self.pinned and (len(content) * 4 > max_bytes or not isinstance(content, str)):
            content = cap_output(content, max_bytes, row.position)
        if content is row.content:
            return _stored.of(row), self._stored_count(row)
        message = PromptMessage(row.role, content, row.tool_calls, row.tool_call_id, row.name, row.position)
        return message, count_message(message, self.context_input.count)

    def _stub(self, row: Message) -> tuple[PromptMessage, int]:
        """Return the stub of a tool output and its token count.

        All stubs of one tool have the count of the widest one, so that nothing has to be counted when a prompt is made
        again.
        """
        name, hint, counter_name = row.name or "tool", self.context_input.recall, self.context_input.counter_name
        kept = _stubs.find(row)
        if kept is not None and (kept.hint, kept.counter_name) == (hint, counter_name):
            return kept.message, kept.tokens
        if name not in self._stub_counts:
            self._stub_counts[name] = self.context_input.count(widest_stub(name, hint)) + self.context_input.count(name)
        message = PromptMessage(row.role, stub(row, hint), (), row.tool_call_id, row.name, row.position)
        framing = count_message(PromptMessage(row.role, "", (), row.tool_call_id), self.context_input.count)
        made = _Stub(hint, counter_name, message, self._stub_counts[name] + framing)
        _stubs.keep(row, made)
        return made.message, made.tokens

    def _stored_count(self, row: Message) -> int:
        return tokens_of(row, self.context_input.counter_name, self.context_input.count)

    def _cut(self, message: PromptMessage, tokens: int, level: int | None) -> tuple[PromptMessage, int]:
        """Return the message in at most `level` tokens, if that makes it smaller."""
        if level is None or tokens <= level:
            return message, tokens
        smaller = shrink_message(message, level, self.context_input.count)
        size = count_message(smaller, self.context_input.count)
        return (smaller, size) if size < tokens else (message, tokens)


def _as_stored(row: Message) -> PromptMessage:
    if row.role is Role.USER:
        return PromptMessage(Role.USER, row.content, position=row.position)
    return PromptMessage(row.role, row.content, row.tool_calls, row.tool_call_id, row.name, row.position, row.reasoning)


_stored = ComputedCache(_as_stored)
"""Cache of the prompt messages for stored messages that are shown whole.

Every prompt gets the same message object, so that values computed from it can be reused.
"""


@dataclass(frozen=True, slots=True)
class _Stub:
    """A row's stub with its token count, and the values that both depend on."""

    hint: RecallHints
    counter_name: str
    message: PromptMessage
    tokens: int


_stubs: IdentityCache[Message, _Stub] = IdentityCache()
"""Cache of the stubs of pruned tool outputs, so that every prompt gets the same message object."""


def _position(row: Message) -> int:
    return row.position
