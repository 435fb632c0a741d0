"""Commands of the chat: `/context`, `/summarize`, `/history`, `/model` and so on."""

import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from throughline.cli.chat.branch import branch
from throughline.cli.chat.context_commands import (
    keep,
    pin,
    restore,
    show_context,
    show_preview,
    show_summaries,
    summarize,
    unpin,
)
from throughline.cli.chat.print_answer import ask_pending
from throughline.cli.chat.state import ChatState, in_history, remark_on, session_of
from throughline.cli.client import SessionFilter
from throughline.cli.history_views import draw_hit, draw_message
from throughline.cli.printable import moment, one_line
from throughline.cli.session_files import LARGEST_POSITION, SHORTEST_PREFIX, is_position, read_id, whole_id
from throughline.domain.errors import InvalidInput
from throughline.domain.prompt import OverrideField
from throughline.wire.messages import CitedMessageOut
from throughline.wire.service import AgentOut
from throughline.wire.sessions import SessionOut

OWN = "default"
"""The word with which `/model` goes back to the agent's own model."""


async def choose_model(state: ChatState, name: str) -> None:
    """Let another model answer from the next message on, or show the model in use and the allowed ones."""
    agent = await _agent_of(state)
    allowed = agent.override_models if OverrideField.MODEL in agent.overrides else []
    if not name:
        _show_model(state, agent, allowed)
    elif name in allowed:
        state.model = name
        state.screen.say(f"{_shown(name)} answers from the next message on, until the agent or the session changes.")
    elif name in {OWN, agent.model}:
        state.model = ""
        state.screen.say(f"{_own_model(agent)} answers from the next message on.")
    else:
        raise InvalidInput(_refusal(agent, name, allowed))


def _show_model(state: ChatState, agent: AgentOut, allowed: list[str]) -> None:
    used = _shown(state.model) if state.model else _own_model(agent)
    others = f"You may choose: {_listed(allowed)}, or {OWN}." if allowed else _none_allowed(agent)
    state.screen.say(f"{used} answers. {others}")


async def _agent_of(state: ChatState) -> AgentOut:
    agents = await state.client.agents()
    found = next((agent for agent in agents if agent.name == state.agent), None)
    if found is None:
        known = ", ".join(agent.name for agent in agents)
        raise InvalidInput(f"The agent {state.agent} no longer exists. /agent chooses another one: {known}.")
    return found


def _refusal(agent: AgentOut, name: str, allowed: list[str]) -> str:
    if not allowed:
        return _none_allowed(agent)
    return f"The agent {agent.name} has no model {_shown(name)!r} to choose. You may choose: {_listed(allowed)}."


def _none_allowed(agent: AgentOut) -> str:
    return (
        f"The agent {agent.name} allows no other model: its file would name them in `override_models`, and `model` in "
        "`overrides`."
    )


def _own_model(agent: AgentOut) -> str:
    return f"The agent's own model ({_shown(agent.model or 'the setting DEFAULT_LLM')})"


def _listed(names: list[str]) -> str:
    return ", ".join(map(_shown, names))


def _shown(name: str) -> str:
    return one_line(name, limit=200)


SHOWN_MESSAGES = 20
MOST_MESSAGES = 10_000
SHOWN_HITS = 10
AROUND = 2
"""Messages shown before and after the one that `/read` names."""


async def show_history(state: ChatState, argument: str) -> None:
    """Print the newest messages, 20 if no number is given, and only the first lines of the long ones."""
    limit = _number(argument, default=SHOWN_MESSAGES)
    _show(state, await state.client.newest_messages(session_of(state).id, limit=limit), shortened=True)


async def read(state: ChatState, argument: str) -> None:
    """Print the message at a position and those around it, or the messages between two positions."""
    first, last = _span_of(argument)
    messages = await state.client.messages_between(session_of(state).id, first, last)
    if not messages:
        raise InvalidInput(f"There is no message #{first}. /history shows the numbers.")
    _show(state, messages)


async def show_reasoning(state: ChatState, argument: str) -> None:
    """Print the reasoning before the message at a position, or before the newest message that has any."""
    through = _position_of(argument) if argument else LARGEST_POSITION - 1
    found = await state.client.last_with_reasoning(session_of(state).id, through)
    if found is None or (argument and found.position != through):
        raise InvalidInput("There is no reasoning to show. The model sent none, or the agent does not show it.")
    state.screen.note(f"before #{found.position}")
    state.screen.say(found.reasoning or "", style="dim")


async def search(state: ChatState, words: str) -> None:
    """Print the messages of the session that match, with their positions."""
    session = session_of(state)
    if not words:
        raise InvalidInput("Write /search with the words to find.")
    found = await state.client.search(session.id, words, limit=SHOWN_HITS)
    if not found:
        state.screen.say("Nothing was found. Try other words, or fewer of them.")
        return
    for hit in found:
        state.screen.draw(draw_hit(hit))
    state.screen.note(f"/read {found[0].message.position} shows it with its neighbours")


async def remember(state: ChatState, text: str) -> None:
    """Store the text as a memory of the user."""
    if not text:
        raise InvalidInput("Write /remember with the text to store as a memory.")
    memory = await state.client.add_memory(text)
    state.screen.say(f"Stored as memory {memory.id}.")


def _show(state: ChatState, messages: Sequence[CitedMessageOut], *, shortened: bool = False) -> None:
    """Print the messages, and how to read what they cite."""
    for message in messages:
        state.screen.draw(draw_message(message, shortened=shortened))
    remark_on(state, [citation for message in messages for citation in message.citations])


def _number(argument: str, *, default: int) -> int:
    if not argument:
        return default
    if not argument.isdecimal() or not 1 <= int(argument[:9]) <= MOST_MESSAGES:
        raise InvalidInput(f"{one_line(argument, limit=20)!r} is not a number from 1 to {MOST_MESSAGES}.")
    return int(argument)


def _position_of(argument: str) -> int:
    position = argument.removeprefix("#")
    if not is_position(position):
        raise InvalidInput("Write /reasoning with a message's number: /reasoning 12.")
    return int(position)


def _span_of(argument: str) -> tuple[int, int]:
    """Return the first and last position for `12`, `#12` or `12-20`. Raises InvalidInput.

    A single position is extended by AROUND messages on each side.
    """
    first, _, last = argument.replace("#", "").partition("-")
    ends = [part.strip() for part in (first, last or first)]
    if not all(map(is_position, ends)):
        raise InvalidInput("Write /read with a message's number, or with two: /read 12 or /read 12-20.")
    low, high = sorted(int(part) for part in ends)
    return (low, high) if last else (max(low - AROUND, 1), high + AROUND)


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
    state.screen.say(in_history(session, await state.client.summary_ready(session.id)))
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
        ChatCommand("/remember TEXT", "store a memory, for agents that are shown memories", remember),
        ChatCommand("/pending", "ask again what the waiting turn waits for", pending),
        ChatCommand("/cancel", "end the waiting turn", cancel),
        ChatCommand("/sessions", "the newest sessions", list_sessions),
        ChatCommand("/resume ID|NUMBER", "continue another session", resume),
        ChatCommand("/branch [N]", "a new session up to message #N, or before your last one, to ask otherwise", branch),
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
