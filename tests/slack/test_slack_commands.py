"""`/agent` and the stop sign: shown to the asker alone, about conversations the asker takes part in."""

from dataclasses import replace

import pytest

from fakes.slack_commands import ANNA, DIRECT, Asked
from fakes.slack_double import TEAM, say
from throughline.db.slack.people import SlackId
from throughline.db.slack.people_links import EmailLink
from throughline.db.slack.slack_events import SlackLocation
from throughline.domain.errors import NotFound
from throughline.domain.run import RunStatus
from throughline.slack.read_event import StopSign

BERT, CHANNEL = "U0BERT001", "C0GENERAL"


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


async def test_whoever_was_a_user_before_is_promised_nothing_and_a_name_formats_nothing(ask: Asked) -> None:
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
