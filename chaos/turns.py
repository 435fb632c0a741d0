"""The kinds of turns that are killed: with and without tools, with a compaction, with a summary written afterwards."""

import asyncio
from dataclasses import dataclass

from chaos.client import Client
from chaos.client_log import Sent
from chaos.messages import Name, text_of

SLOW_SECONDS = 0.3
"""How long the answer of the turn in question takes: long enough for events to be stored while it is written."""


@dataclass(frozen=True, slots=True)
class TurnKind:
    """A kind of turn: its agent, how many turns lead up to it, and the words of their messages and of its own.

    `settle_seconds` passes before it, in which a summary may be written ahead.
    """

    name: str
    agent: str
    earlier: int = 0
    earlier_words: int = 5
    words: int = 5
    uses_tools: bool = False
    settle_seconds: float = 0.0


KINDS = (
    TurnKind("plain", "plain"),
    TurnKind("tools", "noting", uses_tools=True),
    TurnKind("compaction", "compacting", earlier=2, earlier_words=150, words=900),
    TurnKind("preparation", "preparing", earlier=1),
    TurnKind("adoption", "compacting", earlier=5, earlier_words=150, words=500, settle_seconds=1.0),
)


async def lead_up(client: Client, kind: TurnKind, conversation: str) -> Sent:
    """Make a session, talk up to the turn in question, and return its message, not sent yet."""
    session = await client.new_session(kind.agent, key=f"session {conversation}")
    for number in range(1, kind.earlier + 1):
        name = Name(conversation, number)
        await client.send(Sent(session, key=str(name), text=text_of(name, words=kind.earlier_words)))
    await asyncio.sleep(kind.settle_seconds)
    name = Name(conversation, kind.earlier + 1)
    text = text_of(name, uses_tools=kind.uses_tools, slow_seconds=SLOW_SECONDS, words=kind.words)
    return Sent(session, key=str(name), text=text)
