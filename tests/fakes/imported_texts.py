"""Conversations imported into a stage, and the summary that its session has then."""

from collections.abc import Sequence
from dataclasses import replace

from fakes.stage import Stage
from throughline.context.measure import count_message
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.summary import SummaryState, SummaryWithSegments


async def import_texts(stage: Stage, texts: Sequence[str], *, owner: str = "anna") -> None:
    """Import questions and answers in turn; the stage's session is that one from then on."""
    messages = [
        NewMessage(Role.USER if number % 2 == 0 else Role.ASSISTANT, text, Source.API)
        for number, text in enumerate(texts)
    ]
    await import_messages(stage, messages, owner=owner)


async def import_messages(stage: Stage, messages: Sequence[NewMessage], *, owner: str = "anna") -> None:
    """Import the messages for a user of this name; the stage's owner and session are those from then on."""
    stage.owner_id = await stage.database.users.get_or_create(owner)
    counter = stage.dependencies.make_counter("chars")
    dated = [
        DatedMessage(replace(message, token_count=count_message(message, counter.count), counter=counter.name))
        for message in messages
    ]
    new = Imported(stage.owner_id, stage.session.agent, "", Source.API, {})
    stage.session = await stage.database.sessions.import_conversation(new, dated)


async def adopted(stage: Stage) -> SummaryWithSegments:
    """Return the summary in use, with its segments."""
    found = await stage.database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert found is not None
    return found
