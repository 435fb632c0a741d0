"""`/agent` and the stop sign: shown to the asker alone, about conversations the asker takes part in."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

import pytest

from app.context.explain import ContextReport, NextAction
from app.db.database import Database
from app.db.slack.inbox import Place
from app.db.slack.people import SlackId
from app.domain.errors import NotFound
from app.domain.ids import SessionId, UserId
from app.domain.run import RunStatus
from app.slack.blocks import CELLS, Gauge, draw, show_context
from app.slack.bolt import Shown
from app.slack.commands import Commands
from app.slack.incoming import StopSign
from app.slack.services import SlackServices
from app.summary.summarize_now import CompactionResult
from fakes.api_stage import REPORT
from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import TEAM, say
from fakes.slack_stage import IDENTITY

ANNA, BERT = "U0ANNA001", "U0BERT001"
DIRECT, CHANNEL = "D0ANNA001", "C0GENERAL"


@dataclass
class Asked:
    """The commands, and what was summarised and sent later."""

    stage: DeliveryStage
    commands: Commands
    may_end: asyncio.Event
    focuses: list[str] = field(default_factory=list)
    later: list[tuple[str, Shown]] = field(default_factory=list)

    async def __call__(self, text: str, *, user: str = ANNA, channel: str = DIRECT) -> Shown:
        body: dict[str, object] = {"user_id": user, "team_id": TEAM, "channel_id": channel, "text": text}
        return await self.commands.answer({**body, "response_url": "https://hooks.example/1"})


@pytest.fixture
async def ask(outgoing: DeliveryStage) -> AsyncGenerator[Asked]:
    may_end = asyncio.Event()
    may_end.set()
    focuses: list[str] = []
    later: list[tuple[str, Shown]] = []
    database: Database = outgoing.database

    async def report(owner: UserId, session: SessionId) -> ContextReport:
        await database.sessions.get(owner, session)
        return REPORT

    async def summarize(owner: UserId, session: SessionId, focus: str) -> CompactionResult:
        focuses.append(focus)
        await may_end.wait()
        return CompactionResult("adopted", "", 900, 300, await database.sessions.get(owner, session))

    async def respond(url: str, shown: Shown) -> None:
        later.append((url, shown))

    services = SlackServices(database, outgoing.slack, report, summarize, outgoing.clock)
    commands = Commands(services, IDENTITY, respond)
    yield Asked(outgoing, commands, may_end, focuses, later)
    await commands.close()


async def test_context_shows_bars_to_whoever_takes_part(ask: Asked) -> None:
    await ask.stage.take(say("hello"))

    shown = await ask("context")

    assert "window" in str(shown.blocks)
    assert "█" in str(shown.blocks)
    assert (await ask("context", user=BERT)).text.startswith("You have no conversation here")


async def test_in_a_channel_participants_share_and_others_see_nothing(ask: Asked) -> None:
    said = say("together", channel=CHANNEL)
    await ask.stage.take(said)
    await ask.stage.take(say("me too", channel=CHANNEL, thread_ts=said.ts, user=BERT))

    assert (await ask("context", channel=CHANNEL)).blocks
    assert (await ask("context", channel=CHANNEL, user=BERT)).blocks
    assert not (await ask("context", channel=CHANNEL, user="U0CLARA01")).blocks


async def test_a_channel_reaches_nobodys_own_history(ask: Asked) -> None:
    await ask.stage.take(say("my secret"))
    await ask.stage.take(say("hello all", channel=CHANNEL))

    owners = await ask.stage.database.users.get(f"slack:{TEAM}:{CHANNEL}")
    anna = await ask.stage.database.users.get(f"slack:{TEAM}:{ANNA}")
    assert anna is not None
    found = await ask.stage.slack.conversations.latest(TEAM, CHANNEL, anna)

    assert found is not None
    assert (found.owner_id, found.owner_id == anna) == (owners, False)


async def test_summarize_takes_a_focus_and_what_takes_long_follows(ask: Asked) -> None:
    await ask.stage.take(say("hello"))
    assert "900 → 300" in (await ask("summarize the names")).text

    ask.may_end.clear()
    at_once = await ask("summarize")
    ask.may_end.set()
    await ask.stage.until(lambda: bool(ask.later))

    assert ask.focuses == ["the names", ""]
    assert at_once.text == "I am at it…"
    assert ask.later[0][0] == "https://hooks.example/1"
    assert "900 → 300" in ask.later[0][1].text


async def test_new_parts_the_thread_from_its_session_and_keeps_it(ask: Asked) -> None:
    first = say("old matters")
    await ask.stage.take(first)
    anna = await ask.stage.database.users.get(f"slack:{TEAM}:{ANNA}")
    assert anna is not None
    before = await ask.stage.slack.conversations.latest(TEAM, DIRECT, anna)
    await ask("new")
    await ask.stage.take(say("new matters", thread_ts=first.ts))
    after = await ask.stage.slack.conversations.latest(TEAM, DIRECT, anna)

    assert before is not None
    assert after is not None
    assert before.session_id != after.session_id
    assert (await ask.stage.database.sessions.get(anna, before.session_id)).title == "old matters"


async def test_stop_ends_what_runs_and_what_waits(ask: Asked) -> None:
    first = say("one")
    turn = await ask.stage.ask(said=first)
    await ask.stage.take(say("two", thread_ts=first.ts))

    assert (await ask("stop")).text == "Stopped."

    run = await ask.stage.slack.outbox.run_of(turn.claimed.run.id)
    assert run is not None
    assert run.cancel_requested
    await turn.finish("", status=RunStatus.CANCELLED)
    assert (await ask("stop")).text == "There is nothing to stop."


async def test_a_stop_sign_stops_the_run_of_its_message_for_participants_only(ask: Asked) -> None:
    said = say("a long story", channel=CHANNEL)
    turn = await ask.stage.ask(said=said)
    sign = StopSign(Place(TEAM, CHANNEL, said.ts), SlackId(TEAM, BERT))

    await ask.commands.stop_by_sign(sign)
    untouched = await ask.stage.slack.outbox.run_of(turn.claimed.run.id)
    await ask.commands.stop_by_sign(replace(sign, who=SlackId(TEAM, ANNA)))
    stopped = await ask.stage.slack.outbox.run_of(turn.claimed.run.id)

    assert untouched is not None
    assert stopped is not None
    assert (untouched.cancel_requested, stopped.cancel_requested) == (False, True)


async def test_a_stop_sign_under_the_answer_stops_it_too(ask: Asked) -> None:
    turn = await ask.stage.ask()
    await ask.stage.start()
    await turn.say("The answer begins " * 30 + "\n")
    await ask.stage.until_noted()

    place = Place(TEAM, DIRECT, ask.stage.posted[0].ts)
    await ask.commands.stop_by_sign(StopSign(place, SlackId(TEAM, ANNA)))

    run = await ask.stage.slack.outbox.run_of(turn.claimed.run.id)
    assert run is not None
    assert run.cancel_requested


async def test_a_code_makes_a_guest_the_user_and_their_history_comes_along(ask: Asked) -> None:
    await ask.stage.take(say("written as a guest"))
    user = await ask.stage.database.users.get_or_create("anna")
    code = await ask.stage.slack.people.new_code(user)

    assert (await ask(f"link {code}")).text.startswith("Linked.")
    assert (await ask("context")).blocks

    conversation = await ask.stage.slack.conversations.latest(TEAM, DIRECT, user)
    assert conversation is not None
    assert conversation.owner_id == user
    assert "unknown, used or too old" in (await ask(f"link {code}")).text


async def test_a_linked_user_is_not_linked_away_by_e_mail(ask: Asked) -> None:
    user = await ask.stage.database.users.get_or_create("anna")
    await ask(f"link {await ask.stage.slack.people.new_code(user)}")

    assert not await ask.stage.slack.people.link_by_email(SlackId(TEAM, ANNA), "other@example.com")


async def test_anything_else_is_answered_with_help(ask: Asked) -> None:
    for text in ("", "help", "dance", "link"):
        assert "/agent summarize" in (await ask(text)).text


async def test_errors_are_told_in_their_own_sentence(ask: Asked) -> None:
    with pytest.raises(NotFound):
        await ask.stage.slack.people.link_by_code(SlackId(TEAM, ANNA), "no such code")
    assert (await ask("link no-such-code")).text.startswith(":warning: This code")


def test_bars_are_never_empty_above_nothing_and_full_only_at_the_limit() -> None:
    assert draw(Gauge("N", 0, 30)) == "N          [" + "░" * CELLS + "] 0 / 30 0%"
    assert draw(Gauge("N", 1, 1_000)).count("█") == 1
    assert draw(Gauge("N", 999, 1_000)).count("█") == CELLS - 1
    assert draw(Gauge("N", 1_000, 1_000)).count("█") == CELLS
    assert draw(Gauge("K", 5, None)).endswith("5 / off")
    assert "│" in draw(Gauge("window", 100, 1_000, mark=800, is_firing=True))


def test_what_happens_next_is_told() -> None:
    firing = show_context(replace(REPORT, next_action=NextAction.COMPACT))

    assert "⚡" in str(firing.blocks)
    assert "will trigger" in str(firing.blocks)
    assert "triggers nothing" in str(show_context(REPORT).blocks)
