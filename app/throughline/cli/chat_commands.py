"""Commands of the chat: `/context`, `/summarize`, `/history` and so on."""

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from throughline.cli.answering import ask_pending
from throughline.cli.chat_context import (
    keep,
    pin,
    restore,
    show_context,
    show_preview,
    show_summaries,
    summarize,
    unpin,
)
from throughline.cli.chat_history import read, search, show_history, show_reasoning
from throughline.cli.chat_model import choose_model
from throughline.cli.chat_state import ChatState, in_history
from throughline.cli.client import SessionFilter
from throughline.cli.printable import moment, one_line
from throughline.cli.session_ids import SHORTEST_PREFIX, read_id, whole_id
from throughline.domain.errors import InvalidInput
from throughline.wire.sessions import SessionOut

LISTED_SESSIONS = 20
NOTHING_WAITS = "No turn of this session waits."


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """One command of the chat: `usage` is its syntax, `purpose` its line in `/help`."""

    usage: str
    purpose: str
    run: Callable[[ChatState, str], Awaitable[None]]

    @property
    def name(self) -> str:
        """The word after the slash."""
        return self.usage.partition(" ")[0].removeprefix("/")


async def run_command(state: ChatState, line: str) -> None:
    """Run the command in `line`. Raises InvalidInput for an unknown command or a bad argument."""
    name, _, argument = line.removeprefix("/").strip().partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        raise InvalidInput(_hint(name))
    await command.run(state, argument.strip())


async def list_sessions(state: ChatState, _argument: str) -> None:
    """Print the last updated sessions with the numbers that `/resume` accepts."""
    sessions, _ = await state.client.sessions(SessionFilter(), limit=LISTED_SESSIONS)
    state.listed = tuple(sessions)
    if not sessions:
        state.screen.say("No sessions yet.")
    for number, session in enumerate(sessions, start=1):
        state.screen.say(_session_line(number, session))


async def resume(state: ChatState, argument: str) -> None:
    """Continue another session, given by its id, the first characters of it, or its number in the last list."""
    session = await state.client.session(await _chosen_id(state, argument))
    state.session = session
    state.agent, state.model = session.agent, ""
    state.screen.say(f"{one_line(session.title or 'Untitled', limit=60)} ({session.agent})")
    state.screen.say(in_history(session))
    if state.lines is not None:
        await ask_pending(state)


async def pending(state: ChatState, _argument: str) -> None:
    """Ask again what the session's waiting turn waits for."""
    if not await ask_pending(state):
        state.screen.say(NOTHING_WAITS)


async def cancel(state: ChatState, _argument: str) -> None:
    """End the session's waiting turn."""
    run = None if state.session is None else await state.client.waiting_run(state.session.id)
    if run is None:
        state.screen.say(NOTHING_WAITS)
    else:
        await state.client.cancel_run(run.id)
        state.screen.say("The waiting turn is stopped.")


async def start_new(state: ChatState, _argument: str) -> None:
    """Leave the session; the next message begins a new one."""
    state.session, state.model = None, ""
    state.screen.say(f"The next message begins a new session with {state.agent}.")


async def change_agent(state: ChatState, name: str) -> None:
    """Let the agent `name` answer from the next message on; '': print the present agent and all agents."""
    known = ", ".join(agent.name for agent in await state.client.agents())
    if not name:
        state.screen.say(f"{state.agent} answers. The agents are: {known}.")
        return
    if name not in known.split(", "):
        raise InvalidInput(f"There is no agent {one_line(name, limit=60)!r}. The service has: {known}.")
    if state.session is not None:
        state.session = await state.client.change_agent(state.session.id, name)
    state.agent, state.model = name, ""
    state.screen.say(f"{name} answers from the next message on.")


async def show_help(state: ChatState, _argument: str) -> None:
    """Print the commands."""
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        state.screen.say(f"{command.usage:<{width}}  {command.purpose}")
    state.screen.say("Write // for a message that begins with /: //etc/hosts. Ctrl-C stops an answer.")


async def leave(state: ChatState, _argument: str) -> None:
    """End the chat."""
    state.is_over = True


COMMANDS = {
    command.name: command
    for command in (
        ChatCommand("/context", "how full the window is, and what the next message triggers", show_context),
        ChatCommand("/preview [TEXT]", "what the model would be shown with this message", show_preview),
        ChatCommand(
            "/summarize [from N] [INSTRUCTIONS]", "summarize; with either, also summarized messages", summarize
        ),
        ChatCommand("/keep [INSTRUCTIONS|nothing]", "what every summary of this session has to keep", keep),
        ChatCommand("/summaries [N [M]]", "versions of the summary, the text of one, what changed", show_summaries),
        ChatCommand("/restore VERSION", "go back to a version of the summary, 0 for none", restore),
        ChatCommand("/history [N]", "the newest N messages (20)", show_history),
        ChatCommand(
            "/reasoning [N]", "what the model wrote before its last answer, or before message #N", show_reasoning
        ),
        ChatCommand("/search WORDS", "find messages of this session by their words", search),
        ChatCommand("/read N[-M]", "message #N with its neighbours, or #N to #M", read),
        ChatCommand("/pin N", "show message #N in every prompt, with its group", pin),
        ChatCommand("/unpin N", "remove the pin", unpin),
        ChatCommand("/pending", "ask again what the waiting turn waits for", pending),
        ChatCommand("/cancel", "end the waiting turn", cancel),
        ChatCommand("/sessions", "the newest sessions", list_sessions),
        ChatCommand("/resume ID|NUMBER", "continue another session", resume),
        ChatCommand("/new", "begin a new session", start_new),
        ChatCommand("/agent [NAME]", "let another agent answer from the next message on", change_agent),
        ChatCommand("/model [NAME]", "let another model answer, if the agent allows it", choose_model),
        ChatCommand("/help", "this list", show_help),
        ChatCommand("/quit", "leave (also Ctrl-D)", leave),
    )
}


async def _chosen_id(state: ChatState, argument: str) -> str:
    if argument.isdecimal() and len(argument) < SHORTEST_PREFIX:
        if not state.listed:
            await list_sessions(state, "")
        number = int(argument)
        if not 1 <= number <= len(state.listed):
            raise InvalidInput(f"There is no session {number} in the list. /sessions shows the numbers.")
        return state.listed[number - 1].id
    given = read_id(argument)
    if not given:
        raise InvalidInput(
            "Write /resume with a session's id or the first 4 characters or more, or with its number in /sessions."
        )
    return await whole_id(state.client, state.screen, given)


def _session_line(number: int, session: SessionOut) -> str:
    title = one_line(session.title or "Untitled", limit=40)
    return f"{number:>3}  {moment(session.updated_at)}  {session.message_count:>5} messages  {session.agent}  {title}"


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f" Did you mean /{close[0]}?" if close else ""
    return (
        f"There is no command /{one_line(name, limit=30)}.{meant} /help lists them. Write // for a message that "
        "begins with /."
    )
