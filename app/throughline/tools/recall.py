"""Tools with which a model looks up messages that its prompt does not show: by search, and by position.

Their results are marked as quotations, limited in tokens, and name positions. They cover the run's own session; with
`recall: user` in the agent's file, all sessions of the same user.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID

from throughline.context.quoted_history import RECORD_NOTE, head_of, indented
from throughline.context.view.placeholder_texts import TAG, delimited
from throughline.context.view.shrink_message import truncate_middle
from throughline.domain.basic_types import RunId, SessionId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import Message, is_blank, searched_text
from throughline.domain.recall import HistoryFilter, HistoryQuery, Hit, SearchResult
from throughline.domain.tool import ResultRoom, ToolContext
from throughline.ports.storage import History
from throughline.tools.make_function_tool import ToolFailed

MAX_TOKENS = 3_000
"""Most tokens of one result; fewer if the prompt would show less of it (`ToolContext.room`)."""

FRAME_TOKENS = 120
"""Tokens of a result that are reserved for the text around the quoted messages."""

LEAST_TOKENS = 48
HIT_TOKENS = 200
"""Size up to which a found message is quoted as a whole; of a longer one only a snippet is."""

MOST_HITS = 25
MOST_READ = 200
LONGEST_PART = 50_000
LARGEST_POSITION = 2**31 - 1

Count = Callable[[str], int]


def make_recall_tools(history: History, count: Count) -> tuple[Callable[..., object], ...]:
    """Return the functions `search_history`, `read_history` and `read_output`, which look up messages in `history`.

    `count` counts tokens for calls whose context has no counter of the agent's.
    """
    recall = _Recall(history, count)
    return recall.search_history, recall.read_history, recall.read_output


class _Recall:
    """The recall tools as methods: a model passes their arguments; the history and the token counter are kept here."""

    def __init__(self, history: History, count: Count) -> None:
        self._history = history
        self._count = count

    async def search_history(self, query: str, context: ToolContext, limit: int = 8) -> str:
        """Search all earlier messages of the conversation, also those that a summary stands for or that are not shown.

        Args:
            query: words to look for, names and identifiers as they were written; "words in quotes" must stand so in
                the message. author:anna, role:user, tool:name, before:2026-03-01, after:2026-03-01 narrow it down.
            limit: the most messages to return, 1 to 25.
            context: the call's own; a model neither sees nor writes it.
        """
        if is_blank(query):
            raise ToolFailed("The query is empty. Write the words to look for.")
        asked = HistoryQuery(
            query, min(max(limit, 1), MOST_HITS), HistoryFilter(before_run=context.run_id), _day_of(context.run_id)
        )
        session_id = None if context.may_recall_all else context.session_id
        try:
            found = await self._history.search(context.owner_id, session_id, asked)
        except InvalidInput as error:
            raise ToolFailed(error.detail) from error
        return _found(found, context, _room(context, self._count))

    async def read_history(self, from_position: int, to_position: int, context: ToolContext, session: str = "") -> str:
        """Read earlier messages again, word for word, by the positions that summaries and search results name.

        Their further lines are indented by two more spaces.

        Args:
            from_position: the first position, for example 12 for [#12-#40].
            to_position: the last position.
            session: only for messages that search_history found in another conversation: its id.
            context: as above.
        """
        first, last = _span(from_position, to_position)
        session_id = _session(session, context)
        messages = await _read(self._history, context, session_id, (first, min(last, first + MOST_READ - 1)))
        if not messages:
            raise ToolFailed(f"There are no messages #{first}-#{last}.")
        return _quoted_messages(messages, last, context, _room(context, self._count))

    async def read_output(self, position: int, context: ToolContext, offset: int = 0, session: str = "") -> str:
        """Read one long message or tool output again, part by part.

        Further lines are indented by two more spaces.

        Args:
            position: where it stands.
            offset: how many characters to skip; a result that is not the end names the next one.
            session: only for messages that search_history found in another conversation: its id.
            context: as above.
        """
        place, _ = _span(position, position)
        messages = await _read(self._history, context, _session(session, context), (place, place))
        if not messages:
            raise ToolFailed(f"There is no message #{place}.")
        return _part(messages[0], max(offset, 0), context, _room(context, self._count))


async def _read(
    history: History, context: ToolContext, session_id: SessionId, span: tuple[int, int]
) -> tuple[Message, ...]:
    try:
        return await history.read(context.owner_id, session_id, *span)
    except NotFound as error:
        raise ToolFailed("There is no such conversation.") from error


def _day_of(run_id: RunId) -> date:
    """Return the day of a run: ids are UUIDv7, whose first 48 bits are the creation time in milliseconds."""
    return datetime.fromtimestamp((run_id.int >> 80) / 1000, UTC).date()


def _room(context: ToolContext, count: Count) -> ResultRoom:
    given = context.room
    return ResultRoom(MAX_TOKENS, count) if given is None else replace(given, tokens=min(given.tokens, MAX_TOKENS))


def _inner(room: ResultRoom) -> int:
    """Return the tokens for the quoted messages alone: `room` without FRAME_TOKENS, but at least LEAST_TOKENS."""
    return max(room.tokens - FRAME_TOKENS, LEAST_TOKENS)


def _session(named: str, context: ToolContext) -> SessionId:
    """Return the session to read: the one with the id `named`, or the call's own if that is ''.

    Raises ToolFailed for another session unless the agent may recall all, and for text that is no id. The history
    itself refuses sessions of other users.
    """
    if named.strip() in {"", str(context.session_id)}:
        return context.session_id
    if not context.may_recall_all:
        raise ToolFailed("Only this conversation can be read. Leave `session` out.")
    try:
        return SessionId(UUID(named.strip()))
    except ValueError as error:
        raise ToolFailed("`session` is the id of a conversation, as search_history names it.") from error


def _span(first: int, last: int) -> tuple[int, int]:
    low, high = min(first, last), max(first, last)
    if high < 1 or low > LARGEST_POSITION:
        raise ToolFailed("Positions are numbers from 1 on.")
    return max(low, 1), min(high, LARGEST_POSITION)


def _found(found: SearchResult, context: ToolContext, room: ResultRoom) -> str:
    late = " Some messages could not be looked at yet; search again in a moment." if found.incomplete_sessions else ""
    if not found.hits:
        return f"Nothing was found.{late} Try other words, fewer of them, or another spelling."
    shown: list[str] = []
    left = _inner(room)
    for hit in found.hits:
        text = _hit_text(hit, context, room)
        tokens = room.count(text) + 1
        if tokens > left:
            if shown:
                break
            text = text[: _fitting(text, left, room.count)]
        shown.append(text)
        left -= tokens
    more = f"{len(shown)} messages, the best match first; read_history shows what stands around a position.{late}"
    return f"{RECORD_NOTE}\n{delimited(TAG, chr(10).join(shown))}\n{more}"


def _hit_text(hit: Hit, context: ToolContext, room: ResultRoom) -> str:
    text = searched_text(hit.message)
    short = text if len(text) <= HIT_TOKENS * 4 and room.count(text) <= min(HIT_TOKENS, _inner(room)) else hit.snippet
    return f"{head_of(hit.message, context.session_id)} {indented(short)}"


def _quoted_messages(messages: Sequence[Message], last: int, context: ToolContext, room: ResultRoom) -> str:
    """Return a quotation of as many messages as fit, from the first on.

    If not even the first message fits, its head and tail are quoted.
    """
    shown: list[str] = []
    left = _inner(room)
    for message in messages:
        head, text = head_of(message, context.session_id), searched_text(message)
        tokens = len(text) if len(text) > LONGEST_PART else room.count(f"{head} {indented(text)}") + 1
        if tokens > left:
            if shown:
                break
            text = truncate_middle(text, left - room.count(head) - 1, _as_quoted(room), f" of #{message.position}")
        shown.append(f"{head} {indented(text)}")
        left -= tokens
    reached = messages[len(shown) - 1].position
    rest = f"\n#{reached + 1}-#{last} are still to be read." if reached < last and len(messages) > len(shown) else ""
    return f"{RECORD_NOTE}\n{delimited(TAG, chr(10).join(shown))}{rest}"


def _part(message: Message, offset: int, context: ToolContext, room: ResultRoom) -> str:
    """Return a quotation of the message's text from character `offset` on, as much as fits.

    Raises ToolFailed if the text ends before `offset`.
    """
    text = searched_text(message)
    if offset >= len(text) > 0:
        raise ToolFailed(f"#{message.position} has {len(text):,} characters: there is nothing at {offset:,}.")
    end = offset + _fitting(text[offset : offset + LONGEST_PART], _inner(room), _as_quoted(room))
    rest = f" Go on with offset {end}." if end < len(text) else " That is the end."
    place = f"Characters {offset:,} to {end:,} of {len(text):,}.{rest}"
    quoted = f"{head_of(message, context.session_id)} {indented(text[offset:end])}"
    return f"{RECORD_NOTE}\n{delimited(TAG, quoted)}\n{place}"


def _as_quoted(room: ResultRoom) -> Count:
    """Return a function that counts the tokens of a text with the indentation of a quotation."""
    return lambda text: room.count(indented(text))


def _fitting(text: str, max_tokens: int, count: Count) -> int:
    """Return how many leading characters of the text fit into `max_tokens`, at least one unless it is empty."""
    length = min(len(text), max_tokens * 6)
    while length > 1 and (tokens := count(text[:length])) > max_tokens:
        length = max(min(length - 1, int(length * max_tokens / tokens * 0.97)), 1)
    return length
