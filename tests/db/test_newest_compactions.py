"""The compactions of a session, read from the events of its newest runs."""

from dataclasses import replace

from fakes.conversations import Conversation, open_conversation
from throughline.db.database import Database
from throughline.domain.events import CompactionFinished, MessageDelta, NewEvent
from throughline.domain.summary import CompactionOutcome

PRUNED = CompactionFinished("threshold", CompactionOutcome.PRUNED, "", ("pruned",), 6_900, 5_100, 0)
ADOPTED = replace(PRUNED, outcome=CompactionOutcome.ADOPTED, fired=(), tokens_after=2_100, through_position=40)


async def play(conversation: Conversation, *finished: CompactionFinished) -> None:
    claimed = await conversation.start()
    delta = NewEvent(1, MessageDelta(claimed.run.user_message_id, "text"))
    events = [NewEvent(number, event) for number, event in enumerate(finished, start=2)]
    await conversation.database.events.append_events(claimed.lease, [delta, *events])
    await conversation.end(claimed.lease)


async def test_the_newest_compactions_of_a_session_come_first(database: Database) -> None:
    conversation, other = await open_conversation(database), await open_conversation(database, "ben")
    await play(conversation, PRUNED)
    await play(conversation, PRUNED, ADOPTED)
    session_id, owner_id = conversation.session.id, conversation.owner_id
    read = database.events.newest_compactions

    found = await read(owner_id, session_id)

    assert [event for _, event in found] == [ADOPTED, PRUNED, PRUNED]
    assert [time for time, _ in found] == sorted((time for time, _ in found), reverse=True)
    assert len(await read(owner_id, session_id, limit=1)) == 1
    assert await read(other.owner_id, session_id) == ()
    assert await read(other.owner_id, other.session.id) == ()
