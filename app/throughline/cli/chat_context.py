"""Chat commands for the context: how full it is, what a message would do to it, summaries and pins."""

from rich.text import Text

from throughline.cli.chat_state import ChatState, session_of
from throughline.cli.client import ServiceClient
from throughline.cli.context_gauges import draw_context
from throughline.cli.context_views import draw_preview, span
from throughline.cli.printable import one_line, printable
from throughline.cli.summary_views import (
    PREPARED,
    cost_line,
    draw_changes,
    draw_version,
    draw_versions,
    request_of,
    restored,
    spent_line,
    version_named,
    versions_named,
)
from throughline.domain.errors import InvalidInput
from throughline.wire.messages import MessageOut
from throughline.wire.sessions import SessionOut, SummaryVersionOut

LARGEST_POSITION = 2**31 - 1
NO_REQUEST = "nothing"


async def show_context(state: ChatState, _argument: str) -> None:
    """Print the context report: how full the window is, and what the next message triggers."""
    session = session_of(state)
    state.screen.draw(draw_context(await state.client.context(session.id), width=state.screen.width))


async def show_preview(state: ChatState, text: str) -> None:
    """Print what the next model call would show, with `text` as the message if given."""
    session = session_of(state)
    state.screen.draw(draw_preview(await state.client.preview(session.id, text), width=state.screen.width))


async def summarize(state: ChatState, argument: str) -> None:
    """Write a summary now.

    With `from N` or instructions, messages are read again, and the cost is printed before and after.
    """
    session, request = session_of(state), request_of(argument)
    if request:
        state.screen.note(cost_line(await state.client.estimate_summary(session.id, request)))
    state.screen.note("summarizing …")
    done = await state.client.summarize(session.id, request)
    state.session = done.session
    state.screen.say(f"Summary {done.outcome}{f': {done.detail}' if done.detail else '.'}")
    if request:
        state.screen.note(spent_line(done.spent))
    if done.outcome != "adopted":
        return
    state.screen.say(
        f"{done.session.summarized_count} of {done.session.message_count} messages are summarized; "
        f"the prompt went from {done.tokens_before:,} to {done.tokens_after:,} tokens."
    )


async def keep(state: ChatState, instructions: str) -> None:
    """Set what every summary of the session has to keep, and print it. '' changes nothing, `nothing` removes it."""
    session = session_of(state)
    if instructions:
        session = state.session = await state.client.keep_in_summaries(
            session.id, "" if instructions == NO_REQUEST else instructions
        )
    kept = session.summary_instructions
    state.screen.say(
        f"Every summary keeps: {printable(kept)}" if kept else "This session has no instructions for its summaries."
    )


async def show_summaries(state: ChatState, argument: str) -> None:
    """Print the list of summary versions, the text of one version, or the changes between two."""
    session = session_of(state)
    state.screen.draw(await drawn_summaries(state.client, session.id, argument, width=state.screen.width))


async def drawn_summaries(client: ServiceClient, session_id: str, argument: str, *, width: int) -> Text:
    """Return a drawing of the version list, or of the one or two versions in `argument`. Raises InvalidInput."""
    names = versions_named(argument)
    if not names:
        return draw_versions(await client.summaries(session_id), width=width)
    shown = [await _version(client, session_id, name) for name in names]
    return draw_version(shown[0], width=width) if len(shown) == 1 else draw_changes(*shown[:2], width=width)


async def _version(client: ServiceClient, session_id: str, name: str) -> SummaryVersionOut:
    """Return the version with that number or id, or the newest prepared one.

    Raises InvalidInput if no summary is prepared.
    """
    if name != PREPARED:
        return await client.summary(session_id, name)
    waiting = [version for version in await client.summaries(session_id) if version.state == PREPARED]
    if not waiting:
        raise InvalidInput("No summary is prepared now. The list of summaries shows all versions.")
    return waiting[0]


async def restore(state: ChatState, argument: str) -> None:
    """Restore a summary version, given by its number or its id; 0 stands for no summary."""
    state.session, text = await restore_version(state.client, session_of(state).id, argument)
    state.screen.say(text)


async def restore_version(client: ServiceClient, session_id: str, argument: str) -> tuple[SessionOut, str]:
    """Restore the version in `argument`, 0 for none. Return the session and the text to print."""
    name = version_named(argument)
    version = await client.summary(session_id, name) if name.strip("0") else None
    session = await client.restore(session_id, version.id if version else "0")
    return session, restored(version, session)


async def pin(state: ChatState, argument: str) -> None:
    """Pin the message at a position, with its group."""
    message = await _message_at(state, argument, command="/pin")
    group = await state.client.pin(session_of(state).id, message.id)
    positions = [member.position for member in group] or [message.position]
    whole = ", a tool call and its results" if len(positions) > 1 else ""
    state.screen.say(f"Pinned {span(min(positions), max(positions))}{whole}: every prompt shows it word for word.")


async def unpin(state: ChatState, argument: str) -> None:
    """Remove the pin from the message at a position and from its group."""
    message = await _message_at(state, argument, command="/unpin")
    await state.client.unpin(session_of(state).id, message.id)
    state.screen.say(f"#{message.position} is no longer pinned.")


async def _message_at(state: ChatState, argument: str, *, command: str) -> MessageOut:
    session, text = session_of(state), argument.removeprefix("#")
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:11]) <= LARGEST_POSITION:
        given = f", not {one_line(argument, limit=20)!r}" if argument else ""
        raise InvalidInput(f"Write {command} with a message's number in /history{given}.")
    message = await state.client.message_at(session.id, int(text))
    if message is None:
        raise InvalidInput(f"There is no message #{text}. /history shows the numbers.")
    return message
