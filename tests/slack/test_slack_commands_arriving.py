"""`/agent` as Slack sends it: signed over HTTP, answered in the response; over Socket Mode, in the acknowledgement."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import parse_qsl

import pytest

from fakes.api_stage import WallClock, set_stage
from fakes.slack_commands import ANNA, DIRECT, Asked
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, Sender, say, sign
from fakes.slack_double.payloads import message, reaction, slash_command
from fakes.slack_stage import IDENTITY, served_asgi
from fakes.waiting import HANG_SECONDS
from throughline.domain.message import Source
from throughline.domain.session import NewSession
from throughline.http.app import add_interface
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig, SlackHealth
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.read_event import EventStorage
from throughline.slack.socket_mode import SocketMode

RESPONSE_URL = "https://hooks.example/1"


@dataclass
class Arriving:
    """The door with its commands behind bolt, and what sends to it."""

    ask: Asked
    sender: Sender

    async def command(self, text: str, *, channel: str = DIRECT) -> str:
        """Return the text that Slack shows, without its blocks."""
        answer = await self.sender.form(slash_command(text, user=ANNA, channel=channel, response_url=RESPONSE_URL))
        assert answer.status == 200
        return answer.text

    async def write(self, text: str, thread_ts: str = "") -> str:
        said = say(text, thread_ts=thread_ts)
        assert (await self.sender.once(message(said))).status == 200
        return said.ts

    async def statuses(self) -> list[tuple[object, ...]]:
        return await self.ask.stage.rows("select input ->> 'content', status from runs order by seq")


def config_of(ask: Asked) -> SlackConfig:
    return SlackConfig(BOT_TOKEN, SIGNING_SECRET, APP_TOKEN, ask.stage.double.url)


def listeners_of(ask: Asked) -> Listeners:
    storage = EventStorage(ask.stage.slack, IDENTITY, ask.commands.stop_by_sign)
    return Listeners(storage.store, ask.commands.answer)


@pytest.fixture
async def arriving(ask: Asked) -> AsyncGenerator[Arriving]:
    api = set_stage(ask.stage.database)
    bolt = make_bolt(config_of(ask), IDENTITY, listeners_of(ask))
    add_interface(api.app, PATH, EventsEndpoint(bolt, SIGNING_SECRET, WallClock()))
    async with served_asgi(api.app) as client:
        yield Arriving(ask, Sender(client, ack_seconds=HANG_SECONDS))


async def test_context_comes_as_blocks(arriving: Arriving) -> None:
    await arriving.write("hello")

    shown = json.loads(await arriving.command("context"))

    assert "window" in shown["blocks"][1]["text"]["text"]
    assert shown["blocks"][-1]["elements"][0]["text"] == 'About "hello"'


async def test_summarize_takes_its_focus_and_tells_what_it_freed(arriving: Arriving) -> None:
    await arriving.write("hello")

    shown = await arriving.command("summarize the names & dates")

    assert shown == 'Summarized "hello": the summary covers 0 messages now (900 → 300 tokens).'
    assert arriving.ask.focuses == ["the names & dates"]


async def test_a_summary_that_takes_long_follows_over_the_response_url(arriving: Arriving) -> None:
    await arriving.write("hello")
    arriving.ask.may_end.clear()

    at_once = await arriving.command("summarize")
    arriving.ask.may_end.set()
    await arriving.ask.stage.until(lambda: bool(arriving.ask.later))

    assert at_once == "Working on it…"
    assert [url for url, _ in arriving.ask.later] == [RESPONSE_URL]


async def test_new_has_the_threads_next_message_begin_a_session(arriving: Arriving) -> None:
    first = await arriving.write("old matters")

    told = [await arriving.command("new"), await arriving.command("new")]
    await arriving.write("new matters", first)

    assert told == [
        'The next message in the thread of "old matters" begins a new conversation. This one is kept.',
        "The next message in that thread already begins a new conversation.",
    ]
    titles = await arriving.ask.stage.rows("select title from sessions order by created_at")
    assert titles == [("old matters",), ("new matters",)]


async def test_stop_ends_what_waits(arriving: Arriving) -> None:
    first = await arriving.write("one")
    await arriving.write("two", first)

    assert await arriving.command("stop") == 'Stopped: "one".'
    assert await arriving.statuses() == [("one", "cancelled"), ("two", "cancelled")]
    assert await arriving.command("stop") == 'There is nothing to stop in "one".'


async def test_a_stop_sign_ends_the_run_of_its_message(arriving: Arriving) -> None:
    first = await arriving.write("one")
    await arriving.write("two", first)

    await arriving.sender.once(reaction("octagonal_sign", user=ANNA, channel=DIRECT, ts=first))

    assert await arriving.statuses() == [("one", "cancelled"), ("two", "queued")]


async def test_link_and_resume_go_on_with_a_session_of_the_users(arriving: Arriving) -> None:
    database = arriving.ask.stage.database
    anna = await database.users.get_or_create("anna")
    session, _ = await database.sessions.create(NewSession(anna, "assistant", "from afar", Source.API, {}))
    code = await arriving.ask.stage.slack.links.new_code(anna)

    await arriving.write("hello")
    told = [
        await arriving.command(f"link {code}"),
        await arriving.command(f"resume {session.id}", channel="C0GENERAL"),
        await arriving.command(f"resume {session.id}"),
    ]
    await arriving.write("where were we?")

    assert told == [
        'You are "anna" from now on; your earlier messages to me belong to that user now.',
        "Only in a direct conversation with me: in a channel, its members would read your history.",
        'Your next message here (outside a thread) goes on with "from afar".',
    ]
    assert (await arriving.ask.stage.rows("select session_id from runs order by seq"))[1:] == [(session.id,)]


async def test_a_command_that_slack_did_not_sign_is_refused(arriving: Arriving) -> None:
    await arriving.write("one")
    forged = slash_command("stop", user=ANNA, channel=DIRECT, response_url=RESPONSE_URL)
    headers = sign(forged, "another secret") | {"Content-Type": "application/x-www-form-urlencoded"}

    answer = await arriving.sender.client.post(PATH, content=forged, headers=headers)

    assert answer.status_code == 401
    assert await arriving.statuses() == [("one", "queued")]


async def test_over_socket_mode_the_acknowledgement_carries_the_answer(ask: Asked) -> None:
    double, config = ask.stage.double, config_of(ask)
    clock = ask.stage.clock
    bolt = make_bolt(config, IDENTITY, listeners_of(ask))
    async with SocketMode(bolt, config, clock, SlackHealth(clock, is_all=True)).running():
        await double.sockets.connected.wait()
        await double.sockets.deliver("events_api", message(say("hello")))

        def payload(text: str) -> dict[str, object]:
            return dict(parse_qsl(slash_command(text, user=ANNA, channel=DIRECT, response_url=RESPONSE_URL)))

        shown = await double.sockets.deliver("slash_commands", payload("context"))
        stopped = await double.sockets.deliver("slash_commands", payload("stop"))

    assert shown is not None
    assert "window" in shown["payload"]["blocks"][1]["text"]["text"]
    assert stopped is not None
    assert stopped["payload"] == {"text": 'Stopped: "hello".'}
