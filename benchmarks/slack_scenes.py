"""Plays scenes against a Slack of its own and prints, as Markdown, the calls it saw and how the threads read.

`python -m benchmarks.slack_scenes`. The turns are played by hand, by a clock that is moved: a five-minute answer takes
no five minutes. All else is the real thing: events through bolt, the database, senders, Slack's own client.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.db.connection.migrations import upgrade
from app.db.database import Database, DatabaseConfig
from app.domain.json_types import JsonObject
from app.domain.message import Source, text_of
from app.domain.run import RunInput, RunStatus, Submission
from app.slack.bolt import Listeners, make_bolt
from app.slack.config import SlackConfig
from app.slack.health import SlackHealth
from app.slack.incoming import StopSign
from app.slack.intake import Intake
from app.slack.socket_mode import SocketMode
from app.system_clock import SystemClock
from app.telemetry import set_up_logging
from benchmarks.servers import run_postgres
from fakes.slack_delivery import CLAIMER, DeliveryStage, PlayedTurn, delivery_stage
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, BOT_USER, Said, say
from fakes.slack_double.payloads import app_mention, edited, message, reaction
from fakes.slack_stage import IDENTITY, no_command

PARAGRAPH = "A sentence that says something, and another one that says a little more. " * 6
TABLE = (
    "Here:\n\n| city | people | area |\n|---|--:|--:|\n| Bern | 134,000 | 51.6 km² |\n"
    "| 東京 | 14,000,000 | 2,194 km² |\n\nDone."
)
CODE = (
    "Like so:\n\n```python\ndef twice(x):\n    return x * 2  # <!channel> rings for nobody\n```\n"
    "And [docs](https://example.com)."
)
SHOWN = 90


@dataclass
class Scenes:
    """The stage, and the way in."""

    stage: DeliveryStage
    first_call: int = 0

    async def tell(self, payload: JsonObject) -> None:
        """Deliver an event and see it acknowledged."""
        assert await self.stage.double.sockets.deliver("events_api", dict(payload)) is not None

    async def ask(self, said: Said) -> PlayedTurn:
        """Deliver a message; claim its run."""
        await self.tell(message(said))
        claimed = await self.stage.database.runs.claim_next(CLAIMER)
        assert claimed is not None
        return PlayedTurn(self.stage.database, claimed)

    def report(self, title: str, said: Said) -> None:
        """Print the calls since the last report, and the thread as people see it."""
        workspace = self.stage.double.workspace
        print(f"\n## {title}\n\n| at, s | method | text | outcome |\n|--:|---|---|---|")
        for call in workspace.calls[self.first_call :]:
            text = str(call.args.get("markdown_text") or call.args.get("status") or "")
            print(f"| {call.at:.0f} | `{call.method}` | {_short(text)} | {call.outcome} |")
        self.first_call = len(workspace.calls)
        print(f"\nThe thread in {said.channel}:\n")
        print(f"> **{said.user}**: {said.text}")
        for posted in workspace.in_thread(said.channel, said.where):
            edits = f", edited {posted.edits}×" if posted.edits else ""
            print(
                f">\n> **bot** ({'streamed' if posted.was_streamed else 'posted'}{edits}, {len(posted.text):,} chars):"
            )
            shown = posted.text if len(posted.text) < 400 else f"{posted.text[:150]} … {posted.text[-100:]}"
            print("\n".join(f"> {line}" for line in shown.splitlines()))


async def long_time(scenes: Scenes) -> None:
    """A five-minute answer: the stream is renewed before Slack ends it."""
    said = say("Think about it for five minutes.")
    turn = await scenes.ask(said)
    sender = await scenes.stage.start()
    text = ""
    for minute in range(7):
        piece = f"Minute {minute}: {PARAGRAPH}\n\n"
        text += piece
        await _say(scenes, turn, piece)
        scenes.stage.clock.advance(50)
    await turn.finish(text)
    await sender
    scenes.report("A five-minute answer", said)


async def long_text(scenes: Scenes) -> None:
    """30,000 characters: several messages, cut at paragraphs."""
    said = say("Tell me everything.")
    turn = await scenes.ask(said)
    text = "\n\n".join(f"Part {number}. {PARAGRAPH}" for number in range(68))
    await turn.finish(text)
    await scenes.stage.deliver()
    scenes.report(f"An answer of {len(text):,} characters", said)


async def table_and_code(scenes: Scenes) -> None:
    """A table and code."""
    for title, answer in (("A table", TABLE), ("Code, a link and a mention that rings for nobody", CODE)):
        said = say("Show me.")
        turn = await scenes.ask(said)
        await turn.finish(answer)
        await scenes.stage.deliver()
        scenes.report(title, said)


async def stop(scenes: Scenes) -> None:
    """A stop sign in mid-stream."""
    said = say("Tell me a very long story.")
    turn = await scenes.ask(said)
    sender = await scenes.stage.start()
    story = f"Once upon a time. {PARAGRAPH}\n\n"
    await _say(scenes, turn, story)
    await scenes.stage.until_noted()
    await scenes.tell(reaction("octagonal_sign", user=said.user, channel=said.channel, ts=said.ts))
    run = await scenes.stage.slack.outbox.run_of(turn.claimed.run.id)
    assert run is not None
    assert run.cancel_requested, "the worker is told to stop"
    await turn.finish(story, status=RunStatus.CANCELLED)
    await sender
    scenes.report("Stopped in mid-stream by :octagonal_sign:", said)


async def edit(scenes: Scenes) -> None:
    """A message edited while it waits."""
    first = say("Something slow.")
    turn = await scenes.ask(first)
    second = say("What is 2+2?", thread_ts=first.ts)
    await scenes.tell(message(second))
    await scenes.tell(edited(second, "What is 20+20?"))
    await turn.finish("Slow answer.")
    await scenes.stage.deliver()
    claimed = await scenes.stage.database.runs.claim_next(CLAIMER)
    assert claimed is not None
    asked = text_of(claimed.run.input.content)
    await PlayedTurn(scenes.stage.database, claimed).finish(f"You asked: {asked} 40.")
    await scenes.stage.deliver()
    scenes.report("A message edited while it waited", first)


async def two_people(scenes: Scenes) -> None:
    """Two people in one thread, then the same session over REST."""
    first = say(f"<@{BOT_USER}> what shall we eat?", channel="C0LUNCH01")
    await scenes.tell(app_mention(first))
    turn = await scenes.ask(first)
    await turn.finish("Pizza?")
    await scenes.stage.deliver()
    second = say("No cheese for me", channel="C0LUNCH01", user="U0BERT001", thread_ts=first.ts)
    turn = await scenes.ask(second)
    await turn.finish("Then falafel.")
    await scenes.stage.deliver()
    run = turn.claimed.run
    submission = Submission(run.owner_id, run.session_id, RunInput("And to drink?"), Source.API, author="anna")
    await scenes.stage.database.runs.submit(submission, None)
    claimed = await scenes.stage.database.runs.claim_next(CLAIMER)
    assert claimed is not None
    await PlayedTurn(scenes.stage.database, claimed).finish("Tea.")
    scenes.report("Two people in one thread, continued over REST", first)
    print("\nThe runs of its session:\n")
    for row in await _runs(scenes.stage, str(run.session_id)):
        print(f"- {row}")


SCENES: tuple[Callable[[Scenes], Awaitable[None]], ...] = (long_time, long_text, table_and_code, stop, edit, two_people)


async def main() -> int:
    """Play all scenes."""
    set_up_logging("ERROR", "json")
    with tempfile.TemporaryDirectory(prefix="slack-scenes-") as name:
        async with run_postgres(Path(name)) as url, _scenes(url) as scenes:
            for scene in SCENES:
                await scene(scenes)
    return 0


@asynccontextmanager
async def _scenes(url: str) -> AsyncIterator[Scenes]:
    await upgrade(url)
    database = await Database.open(DatabaseConfig(url=url))
    async with delivery_stage(database, url) as stage:
        config = SlackConfig(BOT_TOKEN, app_token=APP_TOKEN, api_url=stage.double.url)

        async def stop_run(sign: StopSign) -> None:
            found = await stage.slack.conversations.run_at(sign.place, sign.user_id)
            if found is not None:
                await database.runs.request_cancel(found.owner_id, found.run_id)

        bolt = make_bolt(config, IDENTITY, Listeners(Intake(stage.slack, IDENTITY, stop_run).take, no_command))
        clock = SystemClock()
        async with SocketMode(bolt, config, clock, SlackHealth(clock, is_all=True)).running():
            await stage.double.sockets.connected.wait()
            stage.double.workspace.calls.clear()
            yield Scenes(stage)
    await database.close()


async def _say(scenes: Scenes, turn: PlayedTurn, text: str) -> None:
    """Let the turn say something and the sender show it."""
    before = len(scenes.stage.methods())
    await turn.say(text)
    await scenes.stage.until(lambda: any(name.startswith("chat.") for name in scenes.stage.methods()[before:]))


async def _runs(stage: DeliveryStage, session: str) -> list[str]:
    statement = "select source, author, input ->> 'content' from runs where session_id = $1 order by seq"
    return [json.dumps(row, ensure_ascii=False) for row in await stage.rows(statement, session)]


def _short(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}… ({len(text):,} chars)"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
