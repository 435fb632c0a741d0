"""`/agent` and the stop sign: shown to the asker alone, about conversations the asker takes part in."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from fakes.scripted_turns import REPORT
from fakes.slack_commands import ANNA, DIRECT, Asked
from fakes.slack_double import TEAM, Said, say
from throughline.context.explain_context import SummaryReport
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import NotFound
from throughline.domain.message import Source
from throughline.domain.run import RunStatus
from throughline.domain.session import NewSession
from throughline.slack.commands import NO_SUCH_SESSION, ONLY_DIRECTLY, WRITE_FIRST, show_context
from throughline.slack.read_event import StopSign
from throughline.slack.store.people import EmailLink, SlackId
from throughline.slack.store.slack_events import SlackLocation, SlackMessage
from throughline.wire.gauges import about_summaries, next_step

BERT, CHANNEL = "U0BERT001", "C0GENERAL"


async def test_context_shows_bars_to_those_who_take_part(ask: Asked) -> None:
    await ask.stage.take(say("hello"))

    shown = await ask("context")

    assert "window" in str(shown.blocks)
    assert "█" in str(shown.blocks)
    assert (await ask("context", user=BERT)).text.startswith("You have no conversation here")


def test_the_context_tells_what_the_command_line_tells() -> None:
    ready = SummaryReport(
        messages_summarized=24,
        token_count=267,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        through_id=None,
        through_position=24,
        model="offline",
    )
    report = replace(REPORT, prepared=ready, counted_from_position=24, can_reach_tokens=False)

    shown = str(show_context(report, "title").blocks)

    for sentence in (next_step(report), *about_summaries(report)):
        assert sentence in shown
    assert "Summary ready: #1-#24; it is used at 71% of the window." in shown
    assert "K is off" in shown


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
    found = await ask.latest(anna, CHANNEL)

    assert (found.owner_id, found.owner_id == anna) == (owners, False)


async def test_summarize_takes_a_focus_and_what_takes_long_follows(ask: Asked) -> None:
    await ask.stage.take(say("hello"))
    assert "900 → 300" in (await ask("summarize the names")).text

    ask.may_end.clear()
    at_once = await ask("summarize")
    ask.may_end.set()
    await ask.stage.until(lambda: bool(ask.later))

    assert ask.focuses == ["the names", ""]
    assert at_once.text == "Working on it…"
    assert ask.later[0][0] == "https://hooks.example/1"
    assert "900 → 300" in ask.later[0][1].text


async def test_new_parts_the_thread_from_its_session_and_keeps_it(ask: Asked) -> None:
    first = say("old matters")
    await ask.stage.take(first)
    anna = await ask.stage.database.users.get(f"slack:{TEAM}:{ANNA}")
    assert anna is not None
    before = await ask.latest(anna)
    await ask("new")
    await ask.stage.take(say("new matters", thread_ts=first.ts))
    after = await ask.latest(anna)

    assert before.session_id != after.session_id
    assert (await ask.stage.database.sessions.get(anna, before.session_id)).title == "old matters"


async def test_stop_ends_what_runs_and_what_waits(ask: Asked) -> None:
    first = say("one")
    turn = await ask.stage.ask(said=first)
    await ask.stage.take(say("two", thread_ts=first.ts))

    assert (await ask("stop")).text == 'Stopped: "one".'

    run = await ask.stage.database.followed_runs.find(turn.claimed.run.id)
    assert run is not None
    assert run.cancel_requested
    await turn.finish("", status=RunStatus.CANCELLED)
    assert (await ask("stop")).text == 'There is nothing to stop in "one".'


async def test_a_stop_sign_stops_the_run_of_its_message_for_participants_only(ask: Asked) -> None:
    said = say("a long story", channel=CHANNEL)
    turn = await ask.stage.ask(said=said)
    sign = StopSign(SlackLocation(TEAM, CHANNEL, said.ts), BERT)

    await ask.commands.stop_by_sign(sign)
    untouched = await ask.stage.database.followed_runs.find(turn.claimed.run.id)
    await ask.commands.stop_by_sign(replace(sign, user_id=ANNA))
    stopped = await ask.stage.database.followed_runs.find(turn.claimed.run.id)

    assert untouched is not None
    assert stopped is not None
    assert (untouched.cancel_requested, stopped.cancel_requested) == (False, True)


async def test_a_stop_sign_under_the_answer_stops_it_too(ask: Asked) -> None:
    turn = await ask.stage.ask()
    await ask.stage.start()
    await turn.say("The answer begins " * 30 + "\n")
    await ask.stage.until_noted()

    place = SlackLocation(TEAM, DIRECT, ask.stage.posted[0].ts)
    await ask.commands.stop_by_sign(StopSign(place, ANNA))

    run = await ask.stage.database.followed_runs.find(turn.claimed.run.id)
    assert run is not None
    assert run.cancel_requested


async def test_a_code_makes_a_guest_the_user_and_their_history_comes_along(ask: Asked) -> None:
    await ask.stage.take(say("written as a guest"))
    user = await ask.stage.database.users.get_or_create("anna")
    code = await ask.stage.slack.links.new_code(user)

    told = (await ask(f"link {code}")).text
    assert told == 'You are "anna" from now on; your earlier messages to me belong to that user now.'
    assert (await ask("context")).blocks

    assert (await ask.latest(user)).owner_id == user
    assert "unknown, used or too old" in (await ask(f"link {code}")).text


async def test_a_user_of_before_is_promised_nothing_and_a_name_formats_nothing(ask: Asked) -> None:
    told = []
    for name in ("anna", "<!channel> *b*"):
        user = await ask.stage.database.users.get_or_create(name)
        told.append((await ask(f"link {await ask.stage.slack.links.new_code(user)}")).text)

    assert told[1] == 'You are "&lt;!channel&gt; *b*" from now on.'


async def test_a_linked_user_is_not_linked_away_by_e_mail(ask: Asked) -> None:
    user = await ask.stage.database.users.get_or_create("anna")
    await ask(f"link {await ask.stage.slack.links.new_code(user)}")

    for address in ("other@example.com", ""):
        assert await ask.stage.slack.links.follow_email(SlackId(TEAM, ANNA), address) is EmailLink.AS_IT_WAS


async def test_anything_else_is_answered_with_help(ask: Asked) -> None:
    for text in ("", "help", "dance", "link"):
        assert "/agent summarize" in (await ask(text)).text


async def test_errors_are_told_in_their_own_sentence(ask: Asked) -> None:
    with pytest.raises(NotFound):
        await ask.stage.slack.links.link_by_code(SlackId(TEAM, ANNA), "no such code")
    assert (await ask("link no-such-code")).text.startswith(":warning: This code")


STOPPED_CHANNEL, PARTNER, THIRD = "C0SHARED1", "T0OTHER01", "T0THIRD01"
STOPPED_ANNA, STOPPED_BERT = "U0ANNA001", "U0BERT001"


async def take(ask: Asked, said: Said, team: str = TEAM) -> None:
    """Take a message of somebody of this workspace."""
    await ask.stage.slack.inbox.accept(
        SlackMessage(
            event_id=f"Ev{said.ts}",
            place=SlackLocation(TEAM, said.channel, said.ts),
            thread_ts=said.where,
            who=SlackId(team, said.user),
            text=said.text,
            is_direct=False,
            is_addressed=True,
        )
    )


async def stopped(ask: Asked, said: Said, user: str) -> list[tuple[object, ...]]:
    """Have somebody put a stop sign under the message; return what is cancelled then."""
    await ask.commands.stop_by_sign(StopSign(SlackLocation(TEAM, STOPPED_CHANNEL, said.ts), user))
    return await ask.stage.rows("select input ->> 'content' from runs where status = 'cancelled' order by seq")


async def test_somebody_of_another_workspace_stops_what_they_asked(ask: Asked) -> None:
    said = say("a long story", channel=STOPPED_CHANNEL, user=STOPPED_BERT)
    await take(ask, said, PARTNER)

    assert await stopped(ask, said, STOPPED_BERT) == [(f"{STOPPED_BERT}: a long story",)]


async def test_a_person_who_wrote_elsewhere_only_stops_nothing(ask: Asked) -> None:
    said = say("a long story", channel=STOPPED_CHANNEL)
    await take(ask, said)
    await take(ask, say("another thread", channel=STOPPED_CHANNEL, user=STOPPED_BERT), PARTNER)

    assert await stopped(ask, said, STOPPED_BERT) == []


async def test_an_id_that_two_of_a_thread_have_stops_nothing_there_and_another_does(ask: Asked) -> None:
    said = say("a long story", channel=STOPPED_CHANNEL)
    await take(ask, said)
    for team in (PARTNER, THIRD):
        await take(ask, say("me too", channel=STOPPED_CHANNEL, thread_ts=said.ts, user=STOPPED_BERT), team)

    assert await stopped(ask, said, STOPPED_BERT) == []
    assert await stopped(ask, said, STOPPED_ANNA) == [(f"{STOPPED_ANNA}: a long story",)]


async def test_an_id_of_two_workspaces_that_is_one_user_stops_their_run(ask: Asked) -> None:
    anna = await ask.stage.database.users.get_or_create("anna")
    said = say("a long story", channel=STOPPED_CHANNEL)
    for team in (TEAM, PARTNER):
        await ask.stage.slack.links.link_by_code(
            SlackId(team, STOPPED_ANNA), await ask.stage.slack.links.new_code(anna)
        )
    await take(ask, said)

    assert await stopped(ask, said, STOPPED_ANNA) == [(f"{STOPPED_ANNA}: a long story",)]


async def test_an_id_that_somebody_in_another_thread_has_too_is_no_other_persons_here(ask: Asked) -> None:
    ours, theirs = (
        say("ours", channel=STOPPED_CHANNEL, user=STOPPED_BERT),
        say("theirs", channel=STOPPED_CHANNEL, user=STOPPED_BERT),
    )
    await asyncio.gather(take(ask, ours), take(ask, theirs, PARTNER))

    assert await stopped(ask, theirs, STOPPED_BERT) == [(f"{STOPPED_BERT}: theirs",)]
    assert len(await stopped(ask, ours, STOPPED_BERT)) == 2


RESUMED_ANNA, RESUMED_BERT = "U0ANNA001", "U0BERT001"
RESUMED_DIRECT = "D0ANNA001"


async def linked(ask: Asked, name: str = "anna") -> UserId:
    """Make the asking person the user of this name; they have written to the bot before."""
    known = "insert into slack_conversations (team_id, channel_id, thread_ts) values ($1, $2, '1600000000.000001')"
    await ask.stage.rows(known, TEAM, RESUMED_DIRECT)
    user = await ask.stage.database.users.get_or_create(name)
    await ask(f"link {await ask.stage.slack.links.new_code(user)}")
    return user


async def session_of(ask: Asked, owner: UserId, title: str = "from the command line") -> SessionId:
    made, _ = await ask.stage.database.sessions.create(NewSession(owner, "assistant", title, Source.CLI, {}))
    return made.id


async def sessions_of_messages(ask: Asked) -> list[tuple[object, ...]]:
    """Return which session each message went to, in their order."""
    return await ask.stage.rows("select session_id from runs order by seq")


async def test_only_the_next_message_outside_a_thread_goes_on_with_the_resumed_session(ask: Asked) -> None:
    session = await session_of(ask, await linked(ask))
    earlier = say("an earlier thread")
    await ask.stage.take(earlier)

    told = (await ask(f"resume {session}")).text
    await ask.stage.take(say("still the earlier thread", thread_ts=earlier.ts))
    resumed = say("where were we?")
    await ask.stage.take(resumed)
    await ask.stage.take(say("and then?", thread_ts=resumed.ts))
    await ask.stage.take(say("something else"))

    assert told == 'Your next message here (outside a thread) goes on with "from the command line".'
    first, again, *rest = [found for (found,) in await sessions_of_messages(ask)]
    assert first == again
    assert rest[:2] == [session, session]
    assert rest[2] not in {first, session}
    assert await ask.stage.rows("select 1 from slack_conversations where thread_ts = ''") == []


async def test_the_last_session_that_was_named_is_the_one(ask: Asked) -> None:
    anna = await linked(ask)
    for session in (first := await session_of(ask, anna), second := await session_of(ask, anna)):
        await ask(f"resume {session}")
    await ask.stage.take(say("go on"))

    assert await sessions_of_messages(ask) == [(second,)]
    assert first != second


async def test_unknown_others_and_archived_sessions_are_answered_alike(ask: Asked) -> None:
    anna, bert = await linked(ask), await ask.stage.database.users.get_or_create("bert")
    archived = await session_of(ask, anna)
    await ask.stage.rows("update sessions set archived = true where id = $1", archived)

    for named in (uuid4(), await session_of(ask, bert), archived, "no-id", "\x00"):
        assert (await ask(f"resume {named}")).text == NO_SUCH_SESSION
    assert (await ask(f"resume {archived}", user=RESUMED_BERT)).text == NO_SUCH_SESSION
    assert await ask.stage.rows("select 1 from slack_conversations where thread_ts = ''") == []


async def test_a_channel_is_refused(ask: Asked) -> None:
    session = await session_of(ask, await linked(ask))

    for channel in ("C0GENERAL", "G0PRIVATE"):
        assert (await ask(f"resume {session}", channel=channel)).text == ONLY_DIRECTLY


async def test_a_conversation_with_somebody_else_waits_for_no_session(ask: Asked) -> None:
    session = await session_of(ask, await linked(ask))

    assert (await ask(f"resume {session}", channel="D0WITHBERT")).text == WRITE_FIRST
    assert await ask.stage.rows("select 1 from slack_conversations where channel_id = 'D0WITHBERT'") == []


@pytest.mark.parametrize("loss", ["archived", "erased", "handed on"])
async def test_a_session_that_is_lost_meanwhile_is_not_taken_up(ask: Asked, loss: str) -> None:
    session = await session_of(ask, await linked(ask))
    await ask(f"resume {session}")
    other = await ask.stage.database.users.get_or_create("bert")
    match loss:
        case "archived":
            await ask.stage.rows("update sessions set archived = true")
        case "erased":
            await ask.stage.rows("delete from sessions")
        case _:
            await ask.stage.rows("update sessions set owner_id = $1", other)

    await ask.stage.take(say("where were we?"))

    assert await sessions_of_messages(ask) != [(session,)]
    assert await ask.stage.rows("select 1 from slack_conversations where thread_ts = ''") == []


async def test_what_waits_for_a_message_is_no_thread_of_its_own(ask: Asked) -> None:
    session = await session_of(ask, await linked(ask))
    await ask.stage.take(say("an earlier thread"))
    await ask.stage.rows("delete from slack_deliveries")
    await ask(f"resume {session}")

    assert '"an earlier thread"' in (await ask("stop")).text
