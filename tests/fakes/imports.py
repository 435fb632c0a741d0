"""Long conversations that were held elsewhere, as an import stores them."""

from dataclasses import replace

from fakes.stage import Stage
from throughline.context.measure import count_message
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.domain.message import NewMessage, Role, Source


def written(number: int) -> DatedMessage:
    role = Role.USER if number % 2 == 0 else Role.ASSISTANT
    message = NewMessage(role=role, content=f"message {number} of a long talk", source=Source.API)
    tokens = count_message(message, lambda text: len(text) // 4)
    return DatedMessage(replace(message, token_count=tokens, counter="chars"))


async def import_into(stage: Stage, messages: int) -> None:
    """Import a conversation of so many messages; the stage's session is that one from then on."""
    new = Imported(stage.owner_id, stage.session.agent, "", Source.API, {})
    long_one = [written(number) for number in range(messages)]
    stage.session = await stage.database.sessions.import_conversation(new, long_one)
