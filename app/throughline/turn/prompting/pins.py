"""Pinning of messages: a pinned message's group stays verbatim in every prompt, within a limit for all pins."""

from functools import partial

from throughline.context.calibration import scale
from throughline.context.measure import tokens_of
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.ports.storage import PinGroup, PinStore
from throughline.turn.prompting.ready_agent import PromptDependencies, ReadyAgent, assemble_unconnected_agent

MAX_PINNED_SHARE = 0.20
"""Largest share of the window for all pins of a session together."""


async def pin_message(
    dependencies: PromptDependencies, pins: PinStore, session: Session, message_id: MessageId
) -> tuple[Message, ...]:
    """Pin the message's whole group and return the group; an already pinned one is returned unchanged.

    Raises NotFound; InvalidInput for a call without all its results, a result without a call, and for pins that would
    take more than MAX_PINNED_SHARE of the window; SettingInvalid as a turn of the agent would.
    """
    group = await pins.find_group(session.owner_id, session.id, message_id)
    if all(message.pinned for message in group.messages):
        return group.messages
    _check_group(group)
    agent = await assemble_unconnected_agent(dependencies, dependencies.agents.get(session.agent))
    return await pins.pin(session.owner_id, session.id, _ids(group), partial(_check_room, group, agent))


async def unpin_message(pins: PinStore, session: Session, message_id: MessageId) -> tuple[Message, ...]:
    """Remove the pin of the message's whole group and return the group. Raises NotFound."""
    group = await pins.find_group(session.owner_id, session.id, message_id)
    return await pins.unpin(session.owner_id, session.id, _ids(group))


def _ids(group: PinGroup) -> tuple[MessageId, ...]:
    return tuple(message.id for message in group.messages)


def _check_group(group: PinGroup) -> None:
    if group.is_orphan:
        raise InvalidInput(
            f"The tool result at position {group.messages[0].position} answers no open call near it, so no prompt "
            "ever shows it. Pin another message.",
            field="message_id",
        )
    if group.missing_results:
        raise InvalidInput(
            f"The tool call at position {group.messages[0].position} still waits for {group.missing_results} of its "
            "results, and is pinned with all of them or not at all. Pin it once the turn has ended; if results never "
            "came, pin the answer instead.",
            field="message_id",
        )


def _check_room(group: PinGroup, agent: ReadyAgent, elsewhere: int) -> None:
    """Raise InvalidInput if all pins together exceed their share of the window.

    `elsewhere` is our count of the other pins; both counts are converted to the model's.
    """
    counter, window = agent.counter, agent.budget.window_tokens
    ours = sum(tokens_of(message, counter.name, counter.count) for message in group.messages)
    limit = int(MAX_PINNED_SHARE * window)
    if scale(ours + elsewhere, agent.factor) <= limit:
        return
    raise InvalidInput(
        f"The pin takes {scale(ours, agent.factor)} tokens, {scale(elsewhere, agent.factor)} are "
        f"pinned already, and all pins together may take {limit}: {MAX_PINNED_SHARE:.0%} of the agent's window of "
        f"{window}. Unpin something first, or pin something shorter.",
        field="message_id",
    )
