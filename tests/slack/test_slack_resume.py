"""`/agent resume`: a session of one's own goes on in a direct conversation, with the next new thread."""

from uuid import uuid4

import pytest

from fakes.slack_commands import Asked
from fakes.slack_double import TEAM, say
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.session import NewSession
from throughline.slack.commands import NO_SUCH_SESSION, ONLY_DIRECTLY, WRITE_FIRST

ANNA, BERT = "U0ANNA001", "U0BERT001"
DIRECT = "D0ANNA001"


async def linked(ask: Asked, name: str = "anna") -> UserId:
    """Make whoever asks the user of this name; they have written to the bot before."""
    known = "insert into slack_conversations (team_id, channel_id, thread_ts) values ($1, $2, '1600000000.000001')"
    await ask.stage.rows(known, TEAM, DIRECT)
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
    assert (await ask(f"resume {archived}", user=BERT)).text == NO_SUCH_SESSION
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
