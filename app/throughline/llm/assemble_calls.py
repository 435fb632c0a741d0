"""Assembly of the tool calls of a streamed answer from their pieces, which are passed on while they arrive."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from throughline.domain.errors import AnswerTooLong
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolCallDelta
from throughline.domain.text import clean_text, is_blank
from throughline.llm.stream_text import StreamText
from throughline.llm.translate_messages import CALL_ID

MOST_CALLS = 1_000
"""Most tool calls of one answer; only the first TurnConfig.max_calls_per_step of them are run."""

MOST_NAME_CHARACTERS = 200
"""Longest name, sent with each piece, of a call whose pieces are passed on. Tools have shorter names."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a tool call as the provider sent it: '' for what it does not contain.

    `index` is the provider's number of the call; some number no calls, or all of them 0.
    """

    index: int | str | None
    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class _Call:
    """A tool call while its pieces arrive.

    `number` is its position in the answer, `id` the provider's id, `final_id` the id under which it is passed on, ''
    until it is chosen. `_unsent` are arguments that were not passed on yet.
    """

    number: int
    id: str = ""
    final_id: str = ""
    name: str = ""
    arguments: StreamText = field(default_factory=StreamText)
    _unsent: list[str] = field(default_factory=list)
    _is_sent: bool = False

    def take(self, name: str, arguments: str) -> bool:
        """Add a piece, and return whether arguments can be passed on now.

        A name that only repeats the known one is ignored: some servers send it with every piece. Arguments wait for the
        name, and blank ones for others: a call with blank arguments has none.
        """
        if name != self.name:
            self.name += name
        text = self.arguments.feed(arguments)
        if text:
            self._unsent.append(text)
        return not is_blank(text) and self._can_send

    def end(self) -> bool:
        """Add what was held back of the arguments, and return whether arguments can be passed on."""
        text = self.arguments.flush()
        if text:
            self._unsent.append(text)
        return bool(self._unsent) and self._can_send and (self._is_sent or not is_blank("".join(self._unsent)))

    @property
    def _can_send(self) -> bool:
        return 0 < len(self.name) <= MOST_NAME_CHARACTERS

    def send(self) -> ToolCallDelta:
        """Return the arguments that were not passed on yet."""
        text, self._is_sent = "".join(self._unsent), True
        self._unsent.clear()
        return ToolCallDelta(self.number, self.final_id, clean_text(self.name), text)


@dataclass(slots=True)
class CallsAssembly:
    """The tool calls of one answer while their pieces arrive.

    `max_characters` limits the names and arguments of all of them together. `taken_ids` are the ids that no call may
    get; the ids of the calls are added.
    """

    max_characters: int
    taken_ids: set[str]
    _calls: list[_Call] = field(default_factory=list)
    _newest: dict[int | str | None, _Call] = field(default_factory=dict)
    _by_id: dict[tuple[int | str | None, str], _Call] = field(default_factory=dict)
    _characters: int = 0

    def add(self, piece: CallPiece) -> Iterator[ToolCallDelta]:
        """Add a piece; yield the arguments that can be passed on. Raises AnswerTooLong if the limits are exceeded."""
        self._characters += len(piece.name) + len(piece.arguments)
        call = self._call_of(piece.index, piece.id)
        if self._characters > self.max_characters or len(self._calls) > MOST_CALLS:
            limit = f"{MOST_CALLS:,} calls or {self.max_characters:,} characters"
            raise AnswerTooLong(f"The answer was stopped: its tool calls exceeded {limit}. Ask for less at a time.")
        if call.take(piece.name, piece.arguments):
            yield self._sent(call)

    def flush(self) -> Iterator[ToolCallDelta]:
        """Yield the arguments held back so far; call it after the last piece."""
        for call in self._calls:
            if call.end():
                yield self._sent(call)

    def finish(self) -> tuple[ToolCall, ...]:
        """Return the calls. One without a usable id of its own, or with a taken one, has a new id.

        Some servers count calls from 0 in every answer.
        """
        return tuple(
            ToolCall(self._choose_id(call), clean_text(call.name), call.arguments.whole) for call in self._calls
        )

    @property
    def sent_ids(self) -> Sequence[str]:
        """The ids of the calls as the provider sent them."""
        return [call.id for call in self._calls]

    def _sent(self, call: _Call) -> ToolCallDelta:
        self._choose_id(call)
        return call.send()

    def _choose_id(self, call: _Call) -> str:
        if not call.final_id:
            is_usable = CALL_ID.fullmatch(call.id) and call.id not in self.taken_ids
            call.final_id = call.id if is_usable else f"call_{secrets.token_hex(12)}"
            self.taken_ids.add(call.final_id)
        return call.final_id

    def _call_of(self, index: int | str | None, call_id: str) -> _Call:
        """Return the call to which a piece belongs: the newest with its index, unless the piece has another id.

        Some servers repeat index 0 for every call.
        """
        call = self._newest.get(index)
        if call is None or (call_id and call.id and call.id != call_id):
            call = self._by_id.get((index, call_id)) or self._new_call(index)
        call.id = call.id or call_id
        self._by_id[index, call.id] = call
        return call

    def _new_call(self, index: int | str | None) -> _Call:
        call = self._newest[index] = _Call(len(self._calls))
        self._calls.append(call)
        return call
