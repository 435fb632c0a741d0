"""Slack tells who put a stop sign by their id alone: they are looked for among those who take part in the session."""

import asyncio

from fakes.slack_commands import Asked
from fakes.slack_double import TEAM, Said, say
from throughline.db.slack.people import SlackId
from throughline.db.slack.slack_events import SlackLocation, SlackMessage
from throughline.slack.read_event import StopSign

CHANNEL, PARTNER, THIRD = "C0SHARED1", "T0OTHER01", "T0THIRD01"
ANNA, BERT = "U0ANNA001", "U0BERT001"


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
    await ask.commands.stop_by_sign(StopSign(SlackLocation(TEAM, CHANNEL, said.ts), user))
    return await ask.stage.rows("select input ->> 'content' from runs where status = 'cancelled' order by seq")


async def test_somebody_of_another_workspace_stops_what_they_asked(ask: Asked) -> None:
    said = say("a long story", channel=CHANNEL, user=BERT)
    await take(ask, said, PARTNER)

    assert await stopped(ask, said, BERT) == [(f"{BERT}: a long story",)]


async def test_whoever_wrote_elsewhere_only_stops_nothing(ask: Asked) -> None:
    said = say("a long story", channel=CHANNEL)
    await take(ask, said)
    await take(ask, say("another thread", channel=CHANNEL, user=BERT), PARTNER)

    assert await stopped(ask, said, BERT) == []


async def test_an_id_that_two_of_a_thread_have_stops_nothing_there_and_another_does(ask: Asked) -> None:
    said = say("a long story", channel=CHANNEL)
    await take(ask, said)
    for team in (PARTNER, THIRD):
        await take(ask, say("me too", channel=CHANNEL, thread_ts=said.ts, user=BERT), team)

    assert await stopped(ask, said, BERT) == []
    assert await stopped(ask, said, ANNA) == [(f"{ANNA}: a long story",)]


async def test_an_id_of_two_workspaces_that_is_one_user_stops_their_run(ask: Asked) -> None:
    anna = await ask.stage.database.users.get_or_create("anna")
    said = say("a long story", channel=CHANNEL)
    for team in (TEAM, PARTNER):
        await ask.stage.slack.links.link_by_code(SlackId(team, ANNA), await ask.stage.slack.links.new_code(anna))
    await take(ask, said)

    assert await stopped(ask, said, ANNA) == [(f"{ANNA}: a long story",)]


async def test_an_id_that_somebody_in_another_thread_has_too_is_no_other_persons_here(ask: Asked) -> None:
    ours, theirs = say("ours", channel=CHANNEL, user=BERT), say("theirs", channel=CHANNEL, user=BERT)
    await asyncio.gather(take(ask, ours), take(ask, theirs, PARTNER))

    assert await stopped(ask, theirs, BERT) == [(f"{BERT}: theirs",)]
    assert len(await stopped(ask, ours, BERT)) == 2
