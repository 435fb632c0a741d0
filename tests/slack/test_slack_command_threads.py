"""Which thread `/agent` is about: the one in which its asker wrote last, whatever others do in the channel."""

from fakes.slack_commands import Asked
from fakes.slack_double import Said, say
from throughline.slack.commands import FORGOTTEN, NOTHING_HERE, PARTED

ANNA, BERT = "U0ANNA001", "U0BERT001"
CHANNEL = "C0GENERAL"


async def start(ask: Asked, text: str, **where: str) -> Said:
    """Take a message that begins a thread."""
    said = say(text, **({"channel": CHANNEL} | where))
    await ask.stage.take(said)
    return said


async def reply(ask: Asked, thread: Said, user: str = ANNA) -> None:
    await ask.stage.take(say("and then?", channel=thread.channel, thread_ts=thread.ts, user=user))


async def forget_whose(ask: Asked) -> None:
    """Delete what is kept of deliveries, as maintenance does with old ones."""
    await ask.stage.rows("delete from slack_deliveries")
    await ask.stage.rows("delete from slack_events")


async def test_it_is_the_thread_its_asker_wrote_in_last_though_others_wrote_elsewhere(ask: Asked) -> None:
    berts, annas = await start(ask, "berts plan", user=BERT), await start(ask, "annas plan")
    await reply(ask, berts)
    await reply(ask, annas)
    await reply(ask, berts, BERT)

    shown = await ask("stop", channel=CHANNEL)

    assert shown.text == 'Stopped: "U0ANNA001: annas plan".'
    stopped = await ask.stage.rows("select input ->> 'content' from runs where status = 'cancelled' order by seq")
    assert stopped == [("U0ANNA001: annas plan",), ("U0ANNA001: and then?",)]
    assert "berts plan" in (await ask("context", channel=CHANNEL, user=BERT)).text


async def test_a_thread_that_was_left_is_told_and_no_other_is_acted_upon(ask: Asked) -> None:
    older, newer = await start(ask, "older"), await start(ask, "newer")
    assert '"U0ANNA001: newer"' in (await ask("new", channel=CHANNEL)).text

    answers = [(await ask(verb, channel=CHANNEL)).text for verb in ("stop", "new", "context", "summarize")]

    assert answers == [PARTED] * 4
    assert await ask.stage.rows("select 1 from runs where status = 'cancelled'") == []
    assert await ask.stage.rows("select thread_ts from slack_conversations where session_id is not null") == [
        (older.ts,)
    ]
    await reply(ask, newer)
    assert '"U0ANNA001: and then?"' in (await ask("context", channel=CHANNEL)).text


async def test_an_archived_session_does_not_count(ask: Asked) -> None:
    await start(ask, "older", channel="D0ANNA001")
    await start(ask, "newer", channel="D0ANNA001")
    await ask.stage.rows("update sessions set archived = true where title = 'newer'")

    assert (await ask("stop")).text == PARTED


async def test_long_after_their_last_message_it_is_the_last_used_direct_thread(ask: Asked) -> None:
    await start(ask, "older", channel="D0ANNA001")
    await start(ask, "newer", channel="D0ANNA001")
    await forget_whose(ask)

    assert 'newer"' in (await ask("stop")).text
    assert (await ask("stop", user="U0CLARA01")).text == NOTHING_HERE


async def test_long_after_their_last_message_in_a_channel_it_is_shown_and_not_acted_upon(ask: Asked) -> None:
    berts = await start(ask, "berts plan", user=BERT)
    await reply(ask, berts)
    await start(ask, "annas plan")
    await start(ask, "berts own", user=BERT)
    await forget_whose(ask)
    await reply(ask, berts, BERT)

    answers = [(await ask(verb, channel=CHANNEL)).text for verb in ("stop", "new", "summarize")]

    assert answers == [FORGOTTEN] * 3
    assert "berts plan" in (await ask("context", channel=CHANNEL)).text
    assert await ask.stage.rows("select 1 from runs where status = 'cancelled'") == []
    assert (await ask("stop", channel=CHANNEL, user="U0CLARA01")).text == NOTHING_HERE


async def test_whoever_takes_part_no_more_is_told_of_no_conversation(ask: Asked) -> None:
    await start(ask, "plans")
    await ask.stage.rows("delete from slack_participants")

    assert (await ask("context", channel=CHANNEL)).text == NOTHING_HERE


async def test_an_error_names_the_thread_too(ask: Asked) -> None:
    await start(ask, "plans", channel="D0ANNA001")
    ask.refuses.set()

    assert (await ask("summarize")).text == ':warning: "plans": The summary model is away.'
