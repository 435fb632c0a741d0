"""Clicks on the buttons of messages that ask about calls: a decision counts once, and only from the person asked.

A button's value says only which message it belongs to. Everything else is read from the database.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog
from pydantic import BaseModel, Field, ValidationError

from throughline.domain.basic_types import RunId
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting, ThroughlineError
from throughline.domain.run import Run
from throughline.domain.tool import ApprovalDecision, AwaitedCall, Resolution, WaitKind
from throughline.execution.error_boundary import ErrorBoundary
from throughline.slack.answers.questions import option_at
from throughline.slack.config import Identity, SlackServices
from throughline.slack.store.outbox import ClickedCall
from throughline.slack.store.people import SlackId
from throughline.slack.web_api import SlackWebApi

_VALUE = re.compile(r"([0-9a-f-]{36}):(-[0-9]{1,6}):(approve|reject|[0-9]{1,2})", re.ASCII)
_ID = r"^[A-Za-z0-9_-]{1,64}$"
NOT_ASKED = "Only <@{reader}> can decide this: their message began the turn."
DECIDED = "This was decided before, or the turn is over."
NOT_STORED = ":warning: Your click could not be stored. The buttons still work: click again in a moment."
log = structlog.get_logger(__name__)


class _User(BaseModel):
    id: str = Field(pattern=_ID)
    team_id: str = Field("", pattern=r"^[A-Za-z0-9_-]{0,64}$")


class _Named(BaseModel):
    id: str = Field(pattern=_ID)


class _Action(BaseModel):
    value: str = ""


class _Message(BaseModel):
    thread_ts: str = Field("", pattern=r"^[0-9.]{0,64}$")


class _Clicks(BaseModel):
    user: _User
    channel: _Named
    message: _Message = _Message()
    enterprise: _Named | None = None
    actions: list[_Action] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Click:
    """A click of `who` in a channel on the button `choice` of message `number` about a call of the run.

    `thread_ts` is the message's thread as Slack names it, '' if it names none.
    """

    who: SlackId
    channel_id: str
    thread_ts: str
    run_id: RunId
    number: int
    choice: str


def read_click(body: Mapping[str, object], identity: Identity) -> Click | None:
    """Return the click in an interaction of Slack, None if it is none on a button of ours."""
    try:
        clicked = _Clicks.model_validate(body)
    except ValidationError:
        return None
    found = _VALUE.fullmatch(clicked.actions[0].value)
    run_id = None if found is None else _run_id(found[1])
    if found is None or run_id is None:
        return None
    enterprise = "" if clicked.enterprise is None else clicked.enterprise.id
    who = identity.person(clicked.user.id, clicked.user.team_id, enterprise_id=enterprise)
    return Click(who, clicked.channel.id, clicked.message.thread_ts, run_id, int(found[2]), found[3])


def _run_id(text: str) -> RunId | None:
    try:
        return RunId(UUID(text))
    except ValueError:
        return None


class ClickHandler:
    """Handler of clicks. Only the person who clicked sees that a click was refused or could not be stored."""

    def __init__(self, services: SlackServices, calls: SlackWebApi, identity: Identity) -> None:
        self._services, self._calls, self._identity = services, calls, identity
        self._late: set[asyncio.Task[None]] = set()

    async def handle(self, body: Mapping[str, object]) -> None:
        """Store the decision of a click. Does nothing for what is no click on a button of ours.

        Raises the errors of the database. The click is then not acknowledged, and because Slack does not repeat it, the
        person who clicked is told.
        """
        click = read_click(body, self._identity)
        if click is None:
            return
        try:
            refusal = await self._store(click)
        except Exception:
            self._tell_later(click, NOT_STORED)
            raise
        if refusal:
            self._tell_later(click, refusal)

    async def close(self) -> None:
        """Cancel notices that are not sent yet."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _store(self, click: Click) -> str:
        """Store the decision, and return '' or the reason why the click changed nothing."""
        asked = self._services.slack.asked
        clicked = await asked.clicked(self._identity.team_id, click.channel_id, click.run_id, click.number)
        if clicked is None:
            log.info("slack click on unknown question ignored", channel=click.channel_id)
            return ""
        return await self._decide(click, clicked)

    async def _decide(self, click: Click, clicked: ClickedCall) -> str:
        """Resume the run, and return '' or the reason why the click changed nothing."""
        if click.who != clicked.reader:
            return NOT_ASKED.format(reader=clicked.reader.user_id)
        try:
            run = await self._services.database.runs.get_run(clicked.owner_id, click.run_id)
            given = await self._read_resolution(run, click, clicked)
            if given is None:
                return DECIDED
            await self._services.database.runs.resume(clicked.owner_id, run.id, [given])
        except (NotFound, InvalidInput, RunNotWaiting):
            return DECIDED
        self._services.slack.outbox.waiting.wake()
        log.info("call decided in slack", run_id=str(run.id), choice=click.choice)
        return ""

    async def _read_resolution(self, run: Run, click: Click, clicked: ClickedCall) -> Resolution | None:
        """Return what the click gives the call, None if the call does not wait for that."""
        call = None if run.wait is None else next((one for one in run.wait.calls if one.id == clicked.call_id), None)
        person = await self._services.slack.people.find(click.who)
        author = None if person is None else person.user_name
        return None if call is None else _resolution(call, click.choice, author)

    def _tell_later(self, click: Click, text: str) -> None:
        """Begin to show a text to the person who clicked; nothing waits for that."""
        late = asyncio.create_task(self._tell(click, text))
        self._late.add(late)
        late.add_done_callback(self._late.discard)

    async def _tell(self, click: Click, text: str) -> None:
        with ErrorBoundary(log.error, task="slack notice to clicking person"):
            try:
                await self._calls.post_ephemeral(click.channel_id, click.thread_ts, click.who.user_id, text)
            except ThroughlineError as error:
                log.info("slack notice to clicking person not shown", error=error.code)


def _resolution(call: AwaitedCall, choice: str, author: str | None) -> Resolution | None:
    if call.kind is WaitKind.ANSWER:
        option = option_at(call, choice)
        return None if option is None else Resolution(call.id, option, author=author)
    if choice not in set(ApprovalDecision):
        return None
    return Resolution(call.id, decision=ApprovalDecision(choice), author=author)
