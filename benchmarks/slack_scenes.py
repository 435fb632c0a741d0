"""Plays scenes in a Slack of its own and prints, as Markdown, the calls it saw and how the threads read.

`python -m benchmarks.slack_scenes`. All of it is the real thing but for the other ends: `throughline serve` with events
over HTTP, signed as Slack signs them; Slack and the model's provider answer on the loopback. Takes about seven minutes,
for one answer takes five: `--seconds 20` makes it shorter, but then no stream has to be renewed.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from benchmarks.processes import Running, ServiceOptions, run_double, run_service
from benchmarks.servers import run_postgres
from benchmarks.slack_transcript import Transcript
from fakes.provider_double.json_types import Json
from fakes.slack_double import (
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    Person,
    Posted,
    Said,
    Sender,
    SlackDouble,
    say,
    serve_slack,
)
from fakes.slack_double.payloads import app_mention, edited, message, reaction, slash_command
from fakes.waiting import HANG_SECONDS, until, until_found

MODEL = "double-128k-cl100k"
KEY = "a-key-of-many-characters"
ANNA = "anna@example.com"
AGENT = """
name: narrator
system_prompt: You are a helpful assistant.
context:
  window: 128000
  response_reserve: 16000
"""
PARAGRAPH = "A sentence that says something, and another one that says a little more. " * 6
TABLE = (
    "Here:\n\n| city | people | area |\n|---|--:|--:|\n| Bern | 134,000 | 51.6 km² |\n"
    "| 東京 | 14,000,000 | 2,194 km² |\n\nDone."
)
CODE = (
    "Like so:\n\n1. ```python\n   def twice(x):\n       return handlers[x](2)  # <!channel> rings for nobody\n   ```\n"
    "And [docs](https://example.com), @here."
)


@dataclass(slots=True)
class Scenes:
    """The service and both its other ends."""

    folder: Path
    database_url: str
    slack: SlackDouble
    provider: Running
    seconds: float
    stack: ExitStack = field(default_factory=ExitStack)
    service: Running | None = None
    transcript: Transcript = field(init=False)

    def __post_init__(self) -> None:
        """Begin the transcript."""
        self.transcript = Transcript(self.slack.workspace)

    async def start(self) -> None:
        """Start the service."""
        environment = {
            "DATABASE_URL": self.database_url,
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_SIGNING_SECRET": SIGNING_SECRET,
            "SLACK_API_URL": self.slack.url,
            "SLACK_LINK_BY_EMAIL": "true",
            "BOOTSTRAP_API_KEY": KEY,
            "SLACK_AGENT": "narrator",
            "LEASE_SECONDS": "3",
            "TURN_TIMEOUT_SECONDS": "900",
        }
        agents = self.folder / "agents"
        agents.mkdir(exist_ok=True)
        (agents / "narrator.yaml").write_text(AGENT)
        options = ServiceOptions(self.folder, self.provider.url, MODEL, agents, environment)
        self.service = await asyncio.to_thread(self.stack.enter_context, run_service(options))

    @property
    def url(self) -> str:
        """Where the service answers."""
        assert self.service is not None
        return self.service.url

    async def kill(self) -> None:
        """Kill the service."""
        assert self.service is not None
        os.kill(self.service.pid, signal.SIGKILL)
        await asyncio.to_thread(self.stack.close)

    async def tell(self, payload: Json) -> None:
        """Deliver an event and see it acknowledged."""
        async with httpx.AsyncClient(base_url=self.url) as client:
            assert (await Sender(client).once(payload)).status == httpx.codes.OK

    async def command(self, text: str, said: Said) -> Json:
        """Type `/agent TEXT` where something was said; return what its asker alone is shown."""
        response_url = self.slack.url.replace("/api/", "/response/anna")
        body = slash_command(text, user=said.user, channel=said.channel, response_url=response_url)
        async with httpx.AsyncClient(base_url=self.url) as client:
            shown: Json = json.loads((await Sender(client).form(body)).text)
        return shown

    async def rest(self, method: str, path: str, body: Json | None = None) -> Json:
        """Ask over REST, as Anna."""
        headers = {"Authorization": f"Bearer {KEY}", "On-Behalf-Of": ANNA}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=HANG_SECONDS) as client:
            response = await client.request(method, f"/v1{path}", json=body)
        found: Json = response.raise_for_status().json()
        return found

    async def script(self, *steps: Json) -> None:
        """Tell the model what to answer next."""
        async with httpx.AsyncClient(base_url=self.provider.url.removesuffix("/v1")) as client:
            response = await client.post("/control/script", json={"steps": steps, "then_default": True})
        response.raise_for_status()

    def answers(self, said: Said) -> list[Posted]:
        """Return what stands in the thread of a message and is finished."""
        posted = self.slack.workspace.in_thread(said.channel, said.where)
        return [item for item in posted if not item.is_streaming]

    def shows(self, said: Said, text: str) -> bool:
        """Whether the thread shows all of a text, in however many messages: between two of them a break is left out."""
        return "\n".join(item.text for item in self.answers(said)).split() == text.split()


async def long_time(scenes: Scenes) -> None:
    """A five-minute answer: the stream is renewed before Slack ends it."""
    said, pieces = say("Think about it for five minutes."), 75
    text = "".join(f"Step {number}. {PARAGRAPH}\n\n" for number in range(pieces // 5))
    await scenes.script({"text": text, "pieces": pieces, "delay_seconds": scenes.seconds / pieces})
    await scenes.tell(message(said))
    await asyncio.sleep(scenes.seconds)
    await until(lambda: scenes.shows(said, text))
    scenes.transcript.tell("A five-minute answer", said)


async def long_text(scenes: Scenes) -> None:
    """30,000 characters: several messages, cut at paragraphs."""
    said = say("Tell me everything.")
    text = "\n\n".join(f"Part {number}. {PARAGRAPH}" for number in range(68))
    await scenes.script({"text": text})
    await scenes.tell(message(said))
    await until(lambda: scenes.shows(said, text))
    scenes.transcript.tell(f"An answer of {len(text):,} characters", said)


async def table_and_code(scenes: Scenes) -> None:
    """A table and code."""
    for title, answer in (("A table", TABLE), ("Code in a list, a link, and what would ring", CODE)):
        said = say("Show me.")
        await scenes.script({"text": answer})
        await scenes.tell(message(said))
        await until(lambda said=said: len(scenes.answers(said)) == 1)  # type: ignore[misc]  # bound in the loop
        scenes.transcript.tell(title, said)


async def stop(scenes: Scenes) -> None:
    """A stop sign in mid-stream."""
    said = say("Tell me a very long story.")
    await scenes.script({"text": f"Once upon a time. {PARAGRAPH * 9}", "pieces": 99, "delay_seconds": 0.3})
    await scenes.tell(message(said))
    posted = scenes.slack.workspace.in_thread
    await until(lambda: any(item.text for item in posted(said.channel, said.ts)))
    await scenes.tell(reaction("octagonal_sign", user=said.user, channel=said.channel, ts=said.ts))
    await until(lambda: len(scenes.answers(said)) == 1)
    scenes.transcript.tell("Stopped in mid-stream by :octagonal_sign:", said)


async def edit(scenes: Scenes) -> None:
    """A message edited while it waits; the model is asked what it says then."""
    first = say("Something slow.")
    await scenes.script({"text": "Slow answer.", "pieces": 4, "delay_seconds": 0.5}, {"text": "That makes 40."})
    await scenes.tell(message(first))
    second = say("What is 2+2?", thread_ts=first.ts)
    await scenes.tell(message(second))
    await scenes.tell(edited(second, "What is 20+20?"))
    await until(lambda: len(scenes.answers(first)) == 2)
    became = replace(second, text="What is 2+2? (while it waits, edited: What is 20+20?)")
    scenes.transcript.tell("A message edited while it waited", first, became)
    session = (await scenes.rest("GET", "/sessions?limit=1"))["data"][0]["id"]
    await _tell_history(scenes, session)


async def crash(scenes: Scenes) -> None:
    """The service is killed in mid-stream, and another goes on."""
    said = say("Tell me a story, whatever happens.")
    step: Json = {"text": f"In the beginning. {PARAGRAPH * 3}", "pieces": 60, "delay_seconds": 0.1}
    await scenes.script(step, step)
    await scenes.tell(message(said))
    posted = scenes.slack.workspace.in_thread
    await until(lambda: any(item.text for item in posted(said.channel, said.ts)))
    await scenes.kill()
    await scenes.start()
    await until(lambda: scenes.shows(said, step["text"]))
    scenes.transcript.tell("Killed in mid-stream (`kill -9`), and started again", said)


async def two_people(scenes: Scenes) -> None:
    """Two people in one thread, then the same session over REST, and in Slack again."""
    first = say(f"<@{BOT_USER}> what shall we eat?", channel="C0LUNCH01")
    await scenes.script(*({"text": text} for text in ("Pizza?", "Then falafel.", "Tea.", "Falafel, and tea.")))
    await scenes.tell(app_mention(first))
    await scenes.tell(message(first))
    await until(lambda: len(scenes.answers(first)) == 1)
    second = say("No cheese for me", channel="C0LUNCH01", user="U0BERT001", thread_ts=first.ts)
    await scenes.tell(message(second))
    await until(lambda: len(scenes.answers(first)) == 2)
    session = (await scenes.rest("GET", f"/runs/{_run_of(scenes.answers(first)[0])}"))["session_id"]
    await scenes.rest("POST", f"/sessions/{session}/messages", {"content": "And to drink?"})
    third = say("So what is it now?", channel="C0LUNCH01", thread_ts=first.ts)
    await scenes.tell(message(third))
    await until(lambda: len(scenes.answers(first)) == 3)
    scenes.transcript.tell("Two people in one thread, continued over REST and in Slack again", first, second, third)
    await _tell_history(scenes, session)
    scenes.transcript.tell_shown("/agent context", await scenes.command("context", third))


SCENES: tuple[Callable[[Scenes], Awaitable[None]], ...] = (
    table_and_code,
    long_text,
    stop,
    edit,
    crash,
    two_people,
    long_time,
)


async def main(arguments: Sequence[str] | None = None) -> int:
    """Play all scenes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=320.0, help="how long the slow answer takes")
    options = parser.parse_args(arguments)
    async with _started(options.seconds) as scenes:
        for scene in SCENES:
            await scene(scenes)
    return 0


@asynccontextmanager
async def _started(seconds: float) -> AsyncIterator[Scenes]:
    """Start everything; Anna is known by her address before anything is told."""
    with tempfile.TemporaryDirectory(prefix="slack-scenes-") as name, run_double(Path(name)) as provider:
        async with run_postgres(Path(name)) as url, serve_slack() as slack:
            slack.workspace.people["U0ANNA001"] = Person("U0ANNA001", "Anna", ANNA)
            slack.workspace.people["U0BERT001"] = Person("U0BERT001", "Bert", "bert@example.com")
            scenes = Scenes(Path(name), url, slack, provider, seconds)
            await scenes.start()
            await _be_linked(scenes)
            try:
                yield scenes
            finally:
                await asyncio.to_thread(scenes.stack.close)


async def _be_linked(scenes: Scenes) -> None:
    said = say("Hello")
    await scenes.tell(message(said))
    await until(lambda: len(scenes.answers(said)) == 1)

    async def is_linked() -> bool:
        return bool((await scenes.rest("GET", "/sessions"))["data"])

    await until_found(is_linked)
    scenes.transcript.forget()


def _run_of(posted: Posted) -> str:
    assert posted.metadata is not None
    return str(posted.metadata["event_payload"]["run"])


async def _tell_history(scenes: Scenes, session: str) -> None:
    history = (await scenes.rest("GET", f"/sessions/{session}/messages"))["data"]
    scenes.transcript.tell_history(history)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
