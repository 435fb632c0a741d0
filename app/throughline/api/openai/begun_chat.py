"""A request for a chat completion as it was read, and the turn that it begins or joins."""

import hashlib
from dataclasses import dataclass, replace

from throughline.api.http.admitted_request import Call
from throughline.api.http.headers import Idempotency
from throughline.api.openai.ask_agent import AgentRequest, ask_agent
from throughline.api.openai.chat_names import SessionName
from throughline.api.openai.follow_part import FollowedPart
from throughline.api.openai.run_parts import newest_part
from throughline.domain.json_types import JsonObject
from throughline.domain.message import Source
from throughline.domain.run import Run


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a request asks of which agent, and where it came from.

    `name` is the session as the request names it, None if it names none. `texts` are those of the user, oldest first.
    `echo` is what is kept of the request without being used. `is_retry`: the client says that it tries again.
    `fingerprint` is a hash of the request if it names a session without an idempotency key, '' otherwise.
    """

    call: Call
    source: Source
    name: SessionName | None
    agent_request: AgentRequest
    texts: tuple[str, ...]
    echo: JsonObject
    idempotency: Idempotency
    is_retry: bool
    fingerprint: str = ""

    @property
    def now(self) -> int:
        """The current Unix time, in seconds."""
        return int(self.call.services.clock.now().timestamp())

    async def ask_once(self, agent_request: AgentRequest, seen: str) -> "BegunChat":
        """Submit a new turn, or find the one that an equal request has begun at the same moment.

        `seen` says in which state both found the session. Raises the errors of `ask_agent`.
        """
        if not self.fingerprint:
            return await self.ask(agent_request)
        key = hashlib.sha256(f"{seen} {self.fingerprint}".encode()).hexdigest()
        return await replace(self, idempotency=Idempotency(f"chat-{key}", self.fingerprint)).ask(agent_request)

    async def ask(self, agent_request: AgentRequest) -> "BegunChat":
        """Submit a new turn, or find the one that the idempotency key has begun. Raises the errors of `ask_agent`."""
        submitted = await ask_agent(self.call, agent_request, self.source, self.idempotency)
        if submitted.replayed:
            return replace(join_run(submitted.run), is_stored=agent_request.is_stored)
        is_fresh = submitted.claimed is not None and submitted.claimed.next_event == 1
        ends_with_client = not agent_request.is_stored and self.idempotency.key is None
        return BegunChat(0, FollowedPart(submitted.run, is_fresh=is_fresh), agent_request.is_stored, ends_with_client)


@dataclass(frozen=True, slots=True)
class BegunChat:
    """A chat completion that was begun: the run's part that it is, and where the part's events are found.

    `is_stored`: the session stays. `ends_with_client`: the run is cancelled if the client disconnects, and if it waits.
    """

    part: int
    followed: FollowedPart
    is_stored: bool = True
    ends_with_client: bool = False


def join_run(run: Run) -> BegunChat:
    """Return the newest part of a run that another request has begun."""
    part = newest_part(run)
    return BegunChat(part, FollowedPart(run, skipped_waits=part))
