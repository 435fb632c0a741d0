"""Tools that ask an agent: a message becomes a turn as over REST, and its answer is waited for a while."""

import asyncio
import hashlib
import json

from pydantic import BaseModel, Field

from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput, TemporaryError
from throughline.domain.events import RunEnded
from throughline.domain.keys import Scope
from throughline.domain.message import is_blank, text_of
from throughline.domain.run import Opening, Run, RunInput, RunStatus, Submission
from throughline.domain.session import NewSession
from throughline.http.call import Call, run_id_of, session_id_of, source_of
from throughline.http.fields import STRICT
from throughline.http.follow import follow_end, wait_for_end
from throughline.http.headers import MAX_KEY_LENGTH, Idempotency
from throughline.mcp.request import SESSION, McpRequest
from throughline.mcp.tool_result import ToolResult
from throughline.wire.events import UNKNOWN_ERROR, ErrorOut, WaitingFor
from throughline.wire.json_shape import Id, Shape

DEFAULT_AGENT = "assistant"
MAX_MESSAGE = 1_000_000
WAIT_SECONDS, TASK_WAIT_SECONDS, MAX_WAIT_SECONDS = 50, 5, 300
"""Seconds until a call answers that the turn is still running: many clients give up after 60, others follow tasks."""

WAIT_FIELD = Field(
    None,
    ge=0,
    le=MAX_WAIT_SECONDS,
    exclude=True,
    description=f"seconds to wait for the answer; default: {WAIT_SECONDS}, {TASK_WAIT_SECONDS} for clients with tasks",
)


class AskAgentArguments(BaseModel):
    """Send a message to an agent and return its answer.

    The conversation is kept: send the returned session_id with the next message to go on with it. If the turn is still
    running, call get_run with the run_id. A repeated call with the same idempotency_key asks nothing twice.
    """

    model_config = STRICT

    message: str = Field(min_length=1, max_length=MAX_MESSAGE)
    session_id: str | None = Field(None, description="the session to go on with; a new one if left out")
    agent: str | None = Field(None, description=f"the agent of a new session; default: {DEFAULT_AGENT}")
    idempotency_key: str | None = Field(None, min_length=1, max_length=MAX_KEY_LENGTH, pattern="^[ -~]+$")
    wait_seconds: int | None = WAIT_FIELD


class GetRunArguments(BaseModel):
    """Return the state of a turn, and its answer once there is one."""

    model_config = STRICT

    run_id: str
    wait_seconds: int | None = WAIT_FIELD


class AskedTurnOut(Shape):
    """A turn that was asked for, with its answer or the reason why there is none yet."""

    session_id: Id
    run_id: Id
    status: str = Field(description="queued, running, waiting, succeeded, failed or cancelled")
    answer: str | None
    error: ErrorOut | None = Field(None, description="why a failed turn has no answer")
    waiting_for: WaitingFor | None = Field(None, description="what a waiting turn needs from a person or a client")


async def ask_agent(asked: McpRequest, given: AskAgentArguments) -> ToolResult:
    """Submit a turn and wait for its answer. Raises what the route for sending messages raises."""
    if is_blank(given.message):
        raise InvalidInput("It is blank. Write a message.", field="message")
    if given.session_id is not None and given.agent is not None:
        raise InvalidInput("It is for a new session. Leave it out, or leave out `session_id`.", field="agent")
    call = await _reach_session(asked, given.session_id)
    keyed = Idempotency(given.idempotency_key, "" if given.idempotency_key is None else _fingerprint(given))
    new = None if given.session_id is not None else _new_session(asked, call, given, keyed)
    submission = Submission(
        owner_id=call.owner_id,
        session_id=session_id_of(str(given.session_id if new is None else new.id)),
        input=RunInput(given.message),
        source=source_of(asked.request, call),
        author=call.principal.user_name,
        actor=call.principal.actor,
        idempotency_key=keyed.key,
        fingerprint=keyed.fingerprint,
        opening=None if new is None else Opening(new),
        refuses_waiting=True,
    )
    submitted = await call.services.submit(submission)
    return await wait_for_turn(asked, call, submitted.run, given.wait_seconds)


async def _reach_session(asked: McpRequest, session_id: str | None) -> Call:
    if session_id is None:
        return await asked.reach(Scope.WRITE, "POST", "/v1/sessions")
    return await asked.reach(Scope.WRITE, "POST", f"{SESSION}/messages", session_id=session_id)


def _fingerprint(given: AskAgentArguments) -> str:
    """Return a hash of what is asked; how long the client waits does not matter."""
    return hashlib.sha256(json.dumps(["ask_agent", given.model_dump()], sort_keys=True).encode()).hexdigest()


def _new_session(asked: McpRequest, call: Call, given: AskAgentArguments, keyed: Idempotency) -> NewSession:
    return NewSession(
        owner_id=call.owner_id,
        agent=_find_agent(call, given.agent),
        title="",
        source=source_of(asked.request, call),
        metadata={},
        idempotency_key=keyed.key,
        fingerprint=keyed.fingerprint,
        id=SessionId(new_id()),
    )


def _find_agent(call: Call, name: str | None) -> str:
    """Return the name of the agent, of the default one for None. Raises NotFound, which names all agents."""
    names = sorted(agent.name for agent in call.services.agents.all())
    usual = DEFAULT_AGENT if DEFAULT_AGENT in names or not names else names[0]
    return call.services.agents.get(usual if name is None else name).name


async def get_run(asked: McpRequest, given: GetRunArguments) -> ToolResult:
    """Return the state of a turn, after waiting for its end. Raises NotFound."""
    call = await asked.reach_run(given.run_id)
    run = await call.services.database.runs.get_run(call.owner_id, run_id_of(given.run_id))
    return await wait_for_turn(asked, call, run, given.wait_seconds)


async def wait_for_turn(asked: McpRequest, call: Call, run: Run, wait_seconds: int | None) -> ToolResult:
    """Return the result of the turn, or its state if it is still running after `wait_seconds`.

    Raises NotAuthenticated once the request's key is revoked. A client that disconnects does not stop the turn.
    """
    seconds, note = wait_seconds, ""
    if seconds is None:
        seconds = TASK_WAIT_SECONDS if asked.message.takes_tasks else WAIT_SECONDS
    if run.status.needs_worker and seconds:
        try:
            async with asyncio.timeout(seconds):
                await wait_for_end(asked.request, follow_end(call, run))
        except TimeoutError:
            pass
        except TemporaryError as error:
            note = error.detail
    return await show_turn(call, run, note)


async def show_turn(call: Call, run: Run, note: str = "") -> ToolResult:
    """Return the run as it is now as the result of a tool; `note` says why it was not waited for."""
    runs = call.services.database.followed_runs
    run = await runs.reload(run)
    ended = None if run.status.needs_worker else await runs.ending(run)
    if ended is not None:
        run = ended.run
    answer = ended.answer if isinstance(ended, RunEnded) else None
    is_failed = run.status is RunStatus.FAILED
    values = {
        "session_id": run.session_id,
        "run_id": run.id,
        "status": run.status,
        "answer": None if answer is None else text_of(answer.content),
        "error": (run.error or UNKNOWN_ERROR) if is_failed else None,
        "waiting_for": run.waiting_for,
    }
    shown = AskedTurnOut.render(values)
    told = _tell(run, None if answer is None else text_of(answer.content), note)
    ids = f"session_id: {run.session_id}, run_id: {run.id}"
    is_error = is_failed or run.status is RunStatus.CANCELLED
    return ToolResult(shown, (told, ids), is_error=is_error, unfinished=None if run.status.is_final else run)


def _tell(run: Run, answer: str | None, note: str) -> str:
    """Return what a model reads of the turn."""
    match run.status:
        case RunStatus.SUCCEEDED:
            return answer or "The agent answered with an empty text."
        case RunStatus.FAILED:
            error = run.error or UNKNOWN_ERROR
            return f"{error.detail} (error: {error.type})"
        case RunStatus.CANCELLED:
            return answer or "The turn was cancelled before it had an answer. The message is kept."
        case RunStatus.WAITING:
            return tell_wait(run)
        case _:
            return f"{note} The turn is {run.status}. Its message is kept: call get_run with the run_id.".strip()


def tell_wait(run: Run) -> str:
    """Return what a waiting turn waits for, and how it is given."""
    calls = () if run.waiting_for is None else run.waiting_for.calls
    named = ", ".join(f"{one.name} ({one.kind})" for one in calls)
    return f"The turn waits for: {named}. A person gives it in the console, or with POST /v1/runs/{run.id}/resume."
