"""Tools that ask an agent: a message becomes a turn as over REST, and its answer is waited for a while."""

import asyncio

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
from throughline.http.headers import MAX_KEY_LENGTH, fingerprint_of
from throughline.mcp_server.protocol import SESSION, McpRequest, ToolResult
from throughline.wire.events import UNKNOWN_ERROR, ErrorOut, WaitingFor
from throughline.wire.json_shape import Id, Shape

DEFAULT_AGENT = "assistant"
MAX_MESSAGE = 1_000_000
WAIT_SECONDS, TASK_WAIT_SECONDS, MAX_WAIT_SECONDS = 50, 5, 300
"""Seconds until a call answers that the turn is still running: many clients give up after 60, others follow tasks."""


class WaitArguments(BaseModel):
    """Arguments of tools that wait for a turn."""

    model_config = STRICT

    wait_seconds: int | None = Field(
        None,
        ge=0,
        le=MAX_WAIT_SECONDS,
        exclude=True,  # a call repeated with its key may wait longer
        description=f"seconds to wait for the answer; default: {WAIT_SECONDS}, with tasks {TASK_WAIT_SECONDS}",
    )


class AskAgentArguments(WaitArguments):
    """Send a message to an agent and return its answer.

    The conversation is kept: send the returned session_id with the next message to go on with it. If the turn is still
    running, call get_run with the run_id. A repeated call with the same idempotency_key asks nothing twice.
    """

    message: str = Field(min_length=1, max_length=MAX_MESSAGE)
    session_id: str | None = Field(None, description="the session to go on with; a new one if left out")
    agent: str | None = Field(None, description=f"the agent of a new session; default: {DEFAULT_AGENT}")
    idempotency_key: str | None = Field(None, min_length=1, max_length=MAX_KEY_LENGTH, pattern="^[ -~]+$")


class GetRunArguments(WaitArguments):
    """Return the state of a turn, and its answer once there is one."""

    run_id: str


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
    if given.session_id is None:
        call = await asked.authorize(Scope.WRITE, "POST", "/v1/sessions")
    elif given.agent is not None:
        raise InvalidInput("It is for a new session. Leave it out, or leave out `session_id`.", field="agent")
    else:
        call = await asked.authorize(Scope.WRITE, "POST", f"{SESSION}/messages", session_id=given.session_id)
    submitted = await call.services.submit(_submission(asked, call, given))
    return await wait_for_turn(asked, call, submitted.run, given.wait_seconds)


def _submission(asked: McpRequest, call: Call, given: AskAgentArguments) -> Submission:
    """Return the message for its session, or for one that it opens. Raises NotFound for an unknown agent."""
    key, source = given.idempotency_key, source_of(asked.request, call)
    fingerprint = "" if key is None else fingerprint_of(asked.request, given)
    opening = None
    if given.session_id is None:
        session_id = SessionId(new_id())
        agent = call.services.agents.get(given.agent or DEFAULT_AGENT).name
        opening = Opening(NewSession(call.owner_id, agent, "", source, {}, key, fingerprint, id=session_id))
    else:
        session_id = session_id_of(given.session_id)
    return Submission(
        owner_id=call.owner_id,
        session_id=session_id,
        input=RunInput(given.message),
        source=source,
        author=call.principal.user_name,
        actor=call.principal.actor,
        idempotency_key=key,
        fingerprint=fingerprint,
        opening=opening,
        refuses_waiting=True,
    )


async def get_run(asked: McpRequest, given: GetRunArguments) -> ToolResult:
    """Return the state of a turn, after waiting for its end. Raises NotFound."""
    call = await asked.authorize_run(given.run_id)
    run = await call.services.database.runs.get_run(call.owner_id, run_id_of(given.run_id))
    return await wait_for_turn(asked, call, run, given.wait_seconds)


async def wait_for_turn(asked: McpRequest, call: Call, run: Run, wait_seconds: int | None) -> ToolResult:
    """Return the result of the turn, or its state if it is still running after `wait_seconds`.

    Raises NotAuthenticated once the request's key is revoked. A client that disconnects does not stop the turn.
    """
    seconds, note = wait_seconds, ""
    if seconds is None:
        seconds = TASK_WAIT_SECONDS if asked.takes_tasks else WAIT_SECONDS
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
    run = run if ended is None else ended.run
    answer = text_of(ended.answer.content) if isinstance(ended, RunEnded) and ended.answer is not None else None
    error = (run.error or UNKNOWN_ERROR) if run.status is RunStatus.FAILED else None
    ids = {"session_id": run.session_id, "run_id": run.id}
    values = {**ids, "status": run.status, "answer": answer, "error": error, "waiting_for": run.waiting_for}
    return ToolResult(
        AskedTurnOut.render(values),
        (_describe_turn(run, answer, note), ", ".join(f"{name}: {value}" for name, value in ids.items())),
        is_error=run.status in {RunStatus.FAILED, RunStatus.CANCELLED},
        unfinished=None if run.status.is_final else run,
    )


def _describe_turn(run: Run, answer: str | None, note: str) -> str:
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
            return describe_wait(run)
        case _:
            return f"{note} The turn is {run.status}. Its message is kept: call get_run with the run_id.".strip()


def describe_wait(run: Run) -> str:
    """Return what a waiting turn waits for, and how it is given."""
    calls = () if run.waiting_for is None else run.waiting_for.calls
    named = ", ".join(f"{one.name} ({one.kind})" for one in calls)
    return f"The turn waits for: {named}. A person gives it in the console, or with POST /v1/runs/{run.id}/resume."
