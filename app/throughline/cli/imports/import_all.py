"""Import of many conversations: each becomes a session as a whole, and one that has a session already is skipped."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from throughline.cli.client import JSON_LINES, RequestRefused, ServiceClient, SessionFilter
from throughline.cli.imports.conversation import ForeignConversation, external_id
from throughline.cli.printable import one_line
from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput, PermanentError
from throughline.ports.stored_threads import LeftOut

PLACES = 3
PROGRESS = 100
OWN_FAULTS = frozenset({
    httpx.codes.BAD_REQUEST,
    httpx.codes.REQUEST_ENTITY_TOO_LARGE,
    httpx.codes.UNPROCESSABLE_ENTITY,
})
"""Refusals that are about one conversation, so that the next ones are imported."""


class ImportIncomplete(PermanentError):
    """Error after an import in which some conversations could not be imported."""

    code = "import_incomplete"


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation that is to be imported. `read` returns it; it raises InvalidInput if it has an unknown form."""

    place: str
    id: str
    read: Callable[[], Awaitable[ForeignConversation]]


@dataclass(slots=True)
class _Count:
    places: list[str] = field(default_factory=list)
    number: int = 0


class Import:
    """One import of many conversations, and what has been done so far."""

    def __init__(self, client: ServiceClient, screen: Screen, agent: str, *, is_dry: bool) -> None:
        """Import through `client`, for `agent`; with `is_dry` nothing is stored."""
        self._client, self._screen, self._agent, self._is_dry = client, screen, agent, is_dry
        self._sessions = self._messages = self._known = self._seen = 0
        self._left_out: dict[str, _Count] = {}
        self._failed: list[str] = []
        self._ids: set[str] = set()

    async def run(self, found: AsyncIterator[Found]) -> None:
        """Import all conversations, and tell what was done, also if an error ends it.

        Raises ImportIncomplete after conversations that could not be imported, and the errors of the client.
        """
        await self._check_agent()
        try:
            async for each in found:
                await self._take(each)
                self._seen += 1
                if self._seen % PROGRESS == 0:
                    self._screen.note(f"{self._seen:,} conversations read, {self._sessions:,} imported")
        finally:
            self._tell()
        if self._failed:
            raise ImportIncomplete(f"Not imported: {len(self._failed):,} conversations, named above.")

    def leave_out(self, left: LeftOut) -> None:
        count = self._left_out.setdefault(left.kind, _Count())
        count.number += 1
        if left.place and len(count.places) < PLACES:
            count.places.append(one_line(left.place, limit=200))

    async def _check_agent(self) -> None:
        names = [agent.name for agent in await self._client.agents()]
        if self._agent not in names:
            raise InvalidInput(f"There is no agent {self._agent!r}. Agents: {', '.join(names)}.")

    async def _take(self, found: Found) -> None:
        if await self._is_known(found.id):
            self._known += 1
            return
        try:
            conversation = await found.read()
            lines = conversation.lines(self._agent)
        except InvalidInput as error:
            self._failed.append(f"{found.place}: {error.detail}")
            return
        except RecursionError:
            self._failed.append(f"{found.place}: it is nested too deeply.")
            return
        if conversation.messages:
            await self._store(found, conversation, lines)
        else:
            self._note(found, conversation)
            self.leave_out(LeftOut("conversations without messages", found.place))

    async def _is_known(self, foreign_id: str) -> bool:
        """Return whether there is a session of the conversation, from an earlier import or earlier in this one."""
        known = external_id(foreign_id)
        if known in self._ids:
            return True
        chosen = SessionFilter(external_id=known, include_archived="true")
        return bool((await self._client.sessions(chosen, limit=1))[0])

    async def _store(self, found: Found, conversation: ForeignConversation, lines: bytes) -> None:
        try:
            if not self._is_dry:
                await self._client.import_session(lines, kind=JSON_LINES)
        except RequestRefused as error:
            if error.status == httpx.codes.CONFLICT:  # another import was faster
                self._known += 1
                return
            if error.status not in OWN_FAULTS:
                raise
            self._failed.append(f"{found.place}: {error.detail}")
            return
        self._ids.add(external_id(conversation.id))
        self._sessions += 1
        self._messages += len(conversation.messages)
        self._note(found, conversation)

    def _note(self, found: Found, conversation: ForeignConversation) -> None:
        for left in conversation.left_out:
            self.leave_out(LeftOut(left.kind, ": ".join(filter(None, (found.place, left.place)))))

    def _tell(self) -> None:
        done = "would be imported" if self._is_dry else "imported"
        with suppress(BrokenPipeError):
            self._screen.say(f"{self._sessions:,} sessions with {self._messages:,} messages {done}")
            if self._known:
                self._screen.say(f"{self._known:,} skipped: a session with their id exists")
            if self._left_out:
                self._screen.say("left out:")
            for kind, count in sorted(self._left_out.items()):
                more = ", …" if count.number > len(count.places) and count.places else ""
                places = f" ({'; '.join(count.places)}{more})" if count.places else ""
                self._screen.say(f"  {count.number:,} {one_line(kind, limit=200)}{places}")
            for failure in self._failed:
                self._screen.warn(f"not imported: {one_line(failure, limit=500)}")
