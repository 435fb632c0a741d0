"""What can be typed in a chat besides messages: `/context`, `/summarize`, `/history` and so on."""

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from rich.text import Text

from app.cli.bars import draw_context
from app.cli.chat_state import ChatState, in_history
from app.cli.client import SessionFilter
from app.cli.printable import moment, one_line, printable
from app.cli.replies import MessageReply, SessionReply
from app.domain.errors import InvalidInput

LISTED_SESSIONS = 20
SHOWN_MESSAGES = 20
MOST_MESSAGES = 10_000
SHOWN_TOOL_TEXT = 160
NO_SESSION = "No message has been sent yet: the session begins with the first one."


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """One command; `usage` is how it is written."""

    usage: str
    purpose: str
    run: Callable[[ChatState, str], Awaitable[None]]

    @property
    def name(self) -> str:
        """The word after the slash."""
        return self.usage.partition(" ")[0].removeprefix("/")


async def run_command(state: ChatState, line: str) -> None:
    """Run the command that `line` holds. Raises InvalidInput for an unknown command or a bad argument."""
    name, _, argument = line.removeprefix("/").strip().partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        raise InvalidInput(_hint(name))
    await command.run(state, argument.strip())


async def show_context(state: ChatState, _argument: str) -> None:
    """Draw how full the window is."""
    session = _require_session(state)
    state.screen.draw(draw_context(await state.client.context(session.id), width=state.screen.width))


async def summarize(state: ChatState, focus: str) -> None:
    """Summarise now, with an eye on `focus` if given."""
    session = _require_session(state)
    state.screen.note("summarizing …")
    done = await state.client.summarize(session.id, instructions=focus)
    state.session = done.session
    state.screen.say(f"Summary {done.outcome}{f': {done.detail}' if done.detail else '.'}")
    if done.outcome != "adopted":
        return
    state.screen.say(
        f"{done.session.summarized_count} of {done.session.message_count} messages are summarized; "
        f"the prompt went from {done.tokens_before:,} to {done.tokens_after:,} tokens."
    )


async def show_history(state: ChatState, argument: str) -> None:
    """Print the newest messages, 20 if no number is given."""
    limit = _number(argument, default=SHOWN_MESSAGES)
    for message in await state.client.newest_messages(_require_session(state).id, limit=limit):
        state.screen.draw(draw_message(message))


async def list_sessions(state: ChatState, _argument: str) -> None:
    """Print the newest sessions with numbers that `/resume` takes."""
    sessions, _ = await state.client.sessions(SessionFilter(), limit=LISTED_SESSIONS)
    state.listed = tuple(sessions)
    if not sessions:
        state.screen.say("No sessions yet.")
    for number, session in enumerate(sessions, start=1):
        state.screen.say(_session_line(number, session))


async def resume(state: ChatState, argument: str) -> None:
    """Go on with another session, by id or by its number in the last list."""
    session = await state.client.session(await _chosen_id(state, argument))
    state.session = session
    state.agent = session.agent
    state.screen.say(f"{one_line(session.title or 'Untitled', limit=60)} ({session.agent})")
    state.screen.say(in_history(session))


async def start_new(state: ChatState, _argument: str) -> None:
    """Leave the session; the next message begins a new one."""
    state.session = None
    state.screen.say(f"The next message begins a new session with {state.agent}.")


async def show_help(state: ChatState, _argument: str) -> None:
    """Print the commands."""
    for command in COMMANDS.values():
        state.screen.say(f"{command.usage:<22}{command.purpose}")
    state.screen.say("A message that begins with / is written with two: //etc/hosts. Ctrl-C stops an answer.")


async def leave(state: ChatState, _argument: str) -> None:
    """End the chat."""
    state.is_over = True


def draw_message(message: MessageReply) -> Text:
    """Return a message with its position; what a tool gave is cut to a line."""
    who = f"{message.role} {message.name}" if message.name else message.role
    head = Text(f"#{message.position} {printable(who)} ", style="bold" if message.role == "user" else "cyan")
    if message.role == "tool":
        return head + Text(one_line(message.text, limit=SHOWN_TOOL_TEXT), style="dim")
    calls = [
        Text(f"\n  calls {one_line(f'{call.name} {call.arguments}', limit=SHOWN_TOOL_TEXT)}", style="dim")
        for call in message.tool_calls
    ]
    return Text("").join([head, Text(printable(message.text)), *calls])


COMMANDS = {
    command.name: command
    for command in (
        ChatCommand("/context", "how full the window is, and what the next message triggers", show_context),
        ChatCommand("/summarize [FOCUS]", "summarize older messages now", summarize),
        ChatCommand("/history [N]", "the newest N messages (20)", show_history),
        ChatCommand("/sessions", "the newest sessions", list_sessions),
        ChatCommand("/resume ID|NUMBER", "go on with another session", resume),
        ChatCommand("/new", "begin a new session", start_new),
        ChatCommand("/help", "this list", show_help),
        ChatCommand("/quit", "leave (also Ctrl-D)", leave),
    )
}


def _require_session(state: ChatState) -> SessionReply:
    if state.session is None:
        raise InvalidInput(NO_SESSION)
    return state.session


async def _chosen_id(state: ChatState, argument: str) -> str:
    if argument.isdecimal():
        if not state.listed:
            await list_sessions(state, "")
        number = int(argument)
        if not 1 <= number <= len(state.listed):
            raise InvalidInput(f"There is no session {number} in the list. /sessions shows the numbers.")
        return state.listed[number - 1].id
    try:
        return str(UUID(argument))
    except ValueError:
        raise InvalidInput("Write /resume with a session's id, or its number in /sessions.") from None


def _number(argument: str, *, default: int) -> int:
    if not argument:
        return default
    if not argument.isdecimal() or not 1 <= int(argument[:9]) <= MOST_MESSAGES:
        raise InvalidInput(f"{one_line(argument, limit=20)!r} is not a number from 1 to {MOST_MESSAGES}.")
    return int(argument)


def _session_line(number: int, session: SessionReply) -> str:
    title = one_line(session.title or "Untitled", limit=40)
    return f"{number:>3}  {moment(session.updated_at)}  {session.message_count:>5} messages  {session.agent}  {title}"


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f" Did you mean /{close[0]}?" if close else ""
    return (
        f"There is no command /{one_line(name, limit=30)}.{meant} /help lists them; "
        "a message that begins with / is written with two."
    )
