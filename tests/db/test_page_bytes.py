"""Pages are bounded in bytes too, and never empty where something follows."""

import pytest

from fakes.conversations import Conversation, open_conversation
from fakes.event_log import MESSAGE_ID
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import MessageId
from throughline.domain.events import MessageDelta, NewEvent
from throughline.domain.message import Content, ImageBlock, NewMessage, Role, Source

MB = 1_000_000
IMAGE = (ImageBlock("data:image/png;base64," + "A" * 3 * MB),)
CONTENTS: tuple[Content, ...] = ("x" * 9 * MB, "ü" * 3 * MB, "y" * 3 * MB, "z", IMAGE, IMAGE, IMAGE, "w")


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


async def test_a_page_of_the_history_stops_at_8_megabytes_and_the_cursor_goes_on(conversation: Conversation) -> None:
    claimed = await conversation.start()
    for step, content in enumerate(CONTENTS):
        message = NewMessage(role=Role.USER, content=content, source=Source.API)
        await conversation.database.messages.append_message(claimed.lease, f"{step}", message)
    pages: list[int] = []
    seen: list[MessageId] = []
    after = 0

    while True:
        query = MessageQuery(after=after, limit=200)
        page = await conversation.database.messages.list_messages(conversation.owner_id, conversation.session.id, query)
        pages.append(len(page.items))
        seen += [message.id for message in page.items]
        if page.next_cursor is None:
            break
        after = int(page.next_cursor)

    assert pages == [1, 2, 4, 1]
    assert seen == [message.id for message in await conversation.messages()]


async def test_a_page_of_events_stops_at_8_megabytes(conversation: Conversation) -> None:
    claimed = await conversation.start()
    for seq in range(1, 5):
        event = NewEvent(seq, MessageDelta(MESSAGE_ID, "x" * 3 * MB))
        await conversation.database.events.append_events(claimed.lease, [event])
    events = conversation.database.events

    first = await events.read_events(claimed.run.id, 0)
    second = await events.read_events(claimed.run.id, first[-1].seq)

    assert [[event.seq for event in page] for page in (first, second)] == [[1, 2, 3], [4]]
