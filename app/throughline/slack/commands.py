"""The command `/agent` with its replies, and the stop reaction: what people may do to a conversation."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

import structlog
from pydantic import BaseModel, ValidationError

from throughline.context.explain_context import ContextReport
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import clean_text
from throughline.domain.summary import CompactionResult
from throughline.execution.error_boundary import ErrorBoundary
from throughline.slack.bolt import CommandReply
from throughline.slack.config import Identity, SlackServices
from throughline.slack.read_event import StopSign
from throughline.slack.store.conversations import Asker, Detached, Found, LastUsed, ThreadSession, is_direct_channel
from throughline.slack.store.people import CodeLink, SlackId
from throughline.turn.summary.reread import SummaryRequest
from throughline.wire.gauges import Gauge, about_summaries, context_gauges, next_step, percent

# Contents of the replies to `/agent`, in Slack's Block Kit. See
# https://docs.slack.dev/reference/block-kit/blocks/section-block/ .

FULL, EMPTY, MARK = "█", "░", "│"
CELLS = 20
NAME_LENGTH = 40
HELP = (
    "*/agent* works on the thread here that you wrote in last, and names it.\n"
    "• `/agent context`: how full its context is, and what the next message triggers\n"
    "• `/agent summarize [focus]`: summarize all but the newest messages now\n"
    "• `/agent new`: begin a new conversation with the next message in that thread; the old one is kept\n"
    "• `/agent stop`: stop the current answer and the messages that wait after it\n"
    "• `/agent resume SESSION_ID`: in a direct conversation, continue a session that you began elsewhere\n"
    "• `/agent link CODE`: become the user for whom `throughline slack link --user NAME` made the code\n"
    "An :octagonal_sign: under a message stops its answer. A message that is still waiting can be edited or deleted."
)


def plain(text: str) -> CommandReply:
    """Return a reply that is only a text."""
    return CommandReply(text)


def named(title: str) -> str:
    """Return the beginning of a title in quotation marks, without mentions, links or formatting.

    A blank title gives the words "a conversation without a title".
    """
    words = " ".join(clean_text(title).replace("`", "'").split())
    if len(words) > NAME_LENGTH:
        words = words[: NAME_LENGTH - 1].rstrip() + "…"
    return f'"{escaped(words)}"' if words else "a conversation without a title"


def show_context(report: ContextReport, title: str) -> CommandReply:
    """Return the context report of the session with this title.

    It shows bars for messages (N), tokens (K) and the window, the next action, and the summaries in use and ready.
    """
    head = f"Context of {report.agent} on {report.model} · window {report.context_window:,} tokens"
    bars = "\n".join(draw(gauge) for gauge in context_gauges(report, ("N messages", "K tokens", "window")))
    details = (
        f"system {report.system_tokens:,} · tools {report.tools_tokens:,} · summary {report.summary_tokens:,} · "
        f"messages {report.message_tokens:,} · {MARK} threshold {report.threshold_tokens:,}"
    )
    told = (next_step(report).replace("⚡", ":zap:"), escaped("\n".join(about_summaries(report))))
    lines = (f"*{escaped(head)}*", f"```{bars}```", *told)
    blocks = [*(_section(line) for line in lines), _context(details), _context(f"About {named(title)}")]
    return CommandReply(f"{escaped(head)}: {report.usage_percent:.0f} % of the window. About {named(title)}.", blocks)


def draw(gauge: Gauge) -> str:
    """Return a gauge as a bar with its numbers. All bars have the same width."""
    filled = gauge.filled_of(CELLS)
    cells = FULL * filled + EMPTY * (CELLS - filled)
    if gauge.mark and gauge.limit and gauge.mark < gauge.limit:
        at = min(CELLS - 1, gauge.mark * CELLS // gauge.limit)
        cells = cells[:at] + MARK + cells[at + 1 :]
    limit = f"{gauge.limit:,}" if gauge.limit else "off"
    share = f" {percent(gauge.used, gauge.limit)}" if gauge.limit else ""
    firing = " ⚡" if gauge.is_firing else ""
    return f"{gauge.label:<10} [{cells}] {gauge.used:,} / {limit}{share}{firing}"


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _context(text: str) -> dict[str, object]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def escaped(text: str) -> str:
    """Return `text` for Slack's mrkdwn, without mentions and links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


AT_ONCE_SECONDS = 1.5
"""How long a command may take before a preliminary reply is sent. Slack demands a reply within three seconds.

The result then follows through the command's `response_url`.
"""

NOTHING_HERE = "You have no conversation here yet. Write to me, or mention me in a channel."
PARTED = "The next message in that thread already begins a new conversation."
FORGOTTEN = "I no longer know in which thread here you wrote last. Write to me there first, then ask again."
WRITE_FIRST = "Write to me here first, then use `/agent resume` again. It works only where nobody else can read."
NO_SUCH_SESSION = "There is no such session of yours. `throughline sessions list` shows your sessions."
ONLY_DIRECTLY = "Only in a direct conversation with me: in a channel, its members would read your history."
BROKEN = "An unexpected error occurred. Try again."
log = structlog.get_logger(__name__)


class _Command(BaseModel):
    user_id: str
    team_id: str = ""
    enterprise_id: str = ""
    channel_id: str
    text: str = ""
    response_url: str = ""


class Commands:
    """Handler of `/agent`, whose replies only the sender of the command sees.

    People who take no part in a conversation get the same reply as if it did not exist.
    """

    def __init__(
        self, services: SlackServices, identity: Identity, respond: Callable[[str, CommandReply], Awaitable[None]]
    ) -> None:
        """Handle commands for `identity`. `respond` sends the results of slow commands to a `response_url`."""
        self._services = services
        self._identity = identity
        self._respond = respond
        self._late: set[asyncio.Task[None]] = set()

    async def answer(self, body: Mapping[str, object]) -> CommandReply:
        """Return the reply, or a preliminary one if the command takes longer than AT_ONCE_SECONDS."""
        try:
            command = _Command.model_validate(body)
        except ValidationError:
            return plain(HELP)
        work = asyncio.create_task(self._do(command))
        done, _ = await asyncio.wait({work}, timeout=AT_ONCE_SECONDS)
        if done:
            return work.result()
        late = asyncio.create_task(self._follow_up(command, work))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        return plain("Working on it…")

    async def stop_by_sign(self, sign: StopSign) -> None:
        """Request that the run of the message to which a participant added a stop reaction is cancelled.

        Does nothing for a message without a run, or a person who takes no part in the conversation.
        """
        found = await self._services.slack.conversations.run_at(sign.place, sign.user_id)
        if found is not None:
            await self._services.database.runs.request_cancel(found.owner_id, found.run_id)
            log.info("run cancellation requested by slack reaction", run_id=str(found.run_id))

    async def close(self) -> None:
        """Cancel the commands that got a preliminary reply and are still running."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _do(self, command: _Command) -> CommandReply:
        verb, _, rest = command.text.strip().partition(" ")
        with ErrorBoundary(log.error, task="slack command"):
            try:
                return await self._verb(verb.lower(), rest.strip(), command)
            except ThroughlineError as error:
                return plain(f":warning: {error.detail}")
        return plain(BROKEN)

    async def _verb(self, verb: str, rest: str, command: _Command) -> CommandReply:
        match verb:
            case "link" if rest:
                return plain(_linked(await self._services.slack.links.link_by_code(self._who(command), rest)))
            case "resume" if rest:
                return plain(await self._resume(rest, command))
            case "context" | "summarize" | "new" | "stop":
                return await self._on_latest(verb, rest, command)
            case _:
                return plain(HELP)

    async def _resume(self, named_session: str, command: _Command) -> str:
        if not is_direct_channel(command.channel_id):
            return ONLY_DIRECTLY
        person = await self._services.slack.people.find(self._who(command))
        session_id = _session_id(named_session)
        if person is None or session_id is None:
            return NO_SUCH_SESSION
        conversations, team_id = self._services.slack.conversations, self._identity.team_id
        if not await conversations.is_known(team_id, command.channel_id):  # it may be one with somebody else
            return WRITE_FIRST
        title = await conversations.resume(team_id, command.channel_id, session_id, person.user_id)
        if title is None:
            return NO_SUCH_SESSION
        return f"Your next message here (outside a thread) goes on with {named(title)}."

    async def _on_latest(self, verb: str, focus: str, command: _Command) -> CommandReply:
        match await self._latest(command):
            case None:
                return plain(NOTHING_HERE)
            case Detached():
                return plain(PARTED)
            case LastUsed() if verb != "context":  # `context` changes nothing and names the thread
                return plain(FORGOTTEN)
            case LastUsed(conversation=conversation) | (ThreadSession() as conversation):
                try:
                    return await self._on_conversation(verb, focus, command, conversation)
                except ThroughlineError as error:
                    return plain(f":warning: {named(conversation.title)}: {error.detail}")

    async def _on_conversation(
        self, verb: str, focus: str, command: _Command, conversation: ThreadSession
    ) -> CommandReply:
        owner_id, session_id, name = conversation.owner_id, conversation.session_id, named(conversation.title)
        match verb:
            case "context":
                return show_context(await self._services.report_context(owner_id, session_id), conversation.title)
            case "summarize":
                return plain(
                    _summarized(await self._services.summarize_now(owner_id, session_id, SummaryRequest(focus)), name)
                )
            case "new":
                await self._services.slack.conversations.leave(
                    self._identity.team_id, command.channel_id, conversation.thread_ts
                )
                return plain(f"The next message in the thread of {name} begins a new conversation. This one is kept.")
            case _:
                return await self._stop(conversation)

    async def _stop(self, conversation: ThreadSession) -> CommandReply:
        runs = await self._services.slack.conversations.open_runs(conversation.session_id)
        for run_id in reversed(runs):  # waiting runs first, or they would begin meanwhile
            await self._services.database.runs.request_cancel(conversation.owner_id, run_id)
        name = named(conversation.title)
        return plain(f"Stopped: {name}." if runs else f"There is nothing to stop in {name}.")

    async def _latest(self, command: _Command) -> Found:
        who = self._who(command)
        person = await self._services.slack.people.find(who)
        if person is None:
            return None
        asker = Asker(who, person.user_id)
        return await self._services.slack.conversations.latest(self._identity.team_id, command.channel_id, asker)

    def _who(self, command: _Command) -> SlackId:
        return self._identity.person(command.user_id, command.team_id, enterprise_id=command.enterprise_id)

    async def _follow_up(self, command: _Command, work: "asyncio.Task[CommandReply]") -> None:
        shown = await work
        if command.response_url:
            await self._respond(command.response_url, shown)


def _linked(link: CodeLink) -> str:
    became = f"You are {named(link.user_name)} from now on"
    return f"{became}; your earlier messages to me belong to that user now." if link.was_guest else f"{became}."


def _session_id(text: str) -> SessionId | None:
    try:
        return SessionId(UUID(text))
    except ValueError:
        return None


def _summarized(result: CompactionResult, name: str) -> str:
    match result.outcome:
        case "adopted":
            done = result.session.summary_through_position
            freed = f"{result.tokens_before:,} → {result.tokens_after:,} tokens"
            return f"Summarized {name}: the summary covers {done} messages now ({freed})."
        case _:
            return f"{name}: {result.detail or 'nothing was summarized.'}"
