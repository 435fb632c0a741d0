"""`/agent` as Slack sends it: signed over HTTP, answered in the response; over Socket Mode, in the acknowledgement."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

import pytest

from fakes.api_stage import WallClock, set_stage
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.slack_commands import ANNA, BERT, DELETES, DIRECT, Asked, WaitingStage, waiting_stage
from fakes.slack_delivery import IDENTITY, DeliveryStage, no_command, served_asgi
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, Posted, Said, Sender, say, sign
from fakes.slack_double.payloads import message, reaction, slash_command
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.transactions import Statements
from throughline.db.database import Database, DatabaseConfig
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnusable
from throughline.domain.message import Source
from throughline.domain.session import NewSession
from throughline.http.app import add_interface
from throughline.slack.answers.decisions import NOT_STORED, ClickHandler
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.commands import FORGOTTEN, NOTHING_HERE, PARTED
from throughline.slack.config import SlackConfig, SlackHealth
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.read_event import EventStorage
from throughline.slack.setup_check import manifest
from throughline.slack.socket_mode import SocketMode

RESPONSE_URL = "https://hooks.example/1"


@dataclass
class Arriving:
    """Slack with its commands behind bolt, and what sends to it."""

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


@pytest.fixture
async def waiting(outgoing: DeliveryStage, ask: Asked) -> AsyncGenerator[WaitingStage]:
    async with waiting_stage(outgoing, ask) as stage:
        stage.turns.model.script(Call((DELETES,)), Say("Gone."))
        yield stage


async def ignore(_body: object) -> None:
    """Nothing else comes here."""


async def asked(waiting: WaitingStage) -> Posted:
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        return await waiting.asked()


@asynccontextmanager
async def sending_to(waiting: WaitingStage, decisions: ClickHandler) -> AsyncIterator[Sender]:
    """Yield what sends Slack's requests over HTTP; clicks go to `decisions`."""
    api = set_stage(waiting.outgoing.database)
    listeners = Listeners(ignore, no_command, click=decisions.handle)
    bolt = make_bolt(SlackConfig(BOT_TOKEN, SIGNING_SECRET), IDENTITY, listeners)
    add_interface(api.app, PATH, EventsEndpoint(bolt, SIGNING_SECRET, WallClock()))
    async with served_asgi(api.app) as client:
        yield Sender(client, ack_seconds=HANG_SECONDS)


@asynccontextmanager
async def all_connections_held(narrow: Database) -> AsyncIterator[None]:
    """Hold the only connection of the database inside the block."""
    is_held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select 1"))
        is_held.set()
        await may_go.wait()

    holding = asyncio.create_task(narrow._transactions.run(hold))  # noqa: SLF001  # nobody else holds one so long
    await is_held.wait()
    try:
        yield
    finally:
        may_go.set()
        await holding


@pytest.fixture
async def sender(waiting: WaitingStage) -> AsyncGenerator[Sender]:
    async with sending_to(waiting, waiting.decisions) as sender:
        yield sender


async def test_a_signed_click_is_stored_before_it_is_acknowledged(waiting: WaitingStage, sender: Sender) -> None:
    body = urlencode({"payload": json.dumps(waiting.payload("approve", await asked(waiting)))})
    headers = sign(body, "another secret") | {"Content-Type": "application/x-www-form-urlencoded"}

    forged = await sender.client.post(PATH, content=body, headers=headers)
    still = await waiting.statuses()
    taken = await sender.form(body)

    assert (forged.status_code, taken.status) == (401, 200)
    assert still == ["waiting"]
    assert await waiting.statuses() != ["waiting"]


async def test_a_click_that_cannot_be_stored_is_not_acknowledged(waiting: WaitingStage, sender: Sender) -> None:
    body = urlencode({"payload": json.dumps(waiting.payload("approve", await asked(waiting)))})
    await run_sql(waiting.outgoing.url, "alter table slack_parts rename to away")

    refused = await sender.form(body)
    await run_sql(waiting.outgoing.url, "alter table away rename to slack_parts")

    assert refused.status in {500, 503}
    assert await waiting.statuses() == ["waiting"]


async def test_a_click_while_the_database_is_away_is_told_and_can_be_repeated(waiting: WaitingStage) -> None:
    body = urlencode({"payload": json.dumps(waiting.payload("approve", await asked(waiting)))})
    narrow = await Database.open(DatabaseConfig(**urls_of(waiting.outgoing.url), pool_size=1, pool_timeout_seconds=0.2))
    try:
        async with sending_to(waiting, waiting.decisions_on(narrow)) as sender:
            async with all_connections_held(narrow):
                refused = await sender.form(body)
                await waiting.outgoing.until(lambda: bool(waiting.notices))
            repeated = await sender.form(body)
    finally:
        await narrow.close()

    assert (refused.status, repeated.status) == (503, 200)
    assert waiting.notices == [(ANNA, NOT_STORED)]
    assert await waiting.statuses() != ["waiting"]


async def test_a_failed_click_is_told_in_the_thread_of_its_question(waiting: WaitingStage) -> None:
    message = await asked(waiting)
    await run_sql(waiting.outgoing.url, "alter table slack_parts rename to away")

    with pytest.raises(DatabaseUnusable):
        await waiting.click("approve", message)
    await waiting.outgoing.until(lambda: bool(waiting.notices))
    await run_sql(waiting.outgoing.url, "alter table away rename to slack_parts")

    assert [args["thread_ts"] for _, args in waiting.outgoing.double.workspace.responses] == [message.thread_ts]


async def test_a_click_comes_over_socket_mode_too(waiting: WaitingStage) -> None:
    message = await asked(waiting)
    double, clock = waiting.outgoing.double, waiting.outgoing.clock
    config = SlackConfig(BOT_TOKEN, SIGNING_SECRET, APP_TOKEN, double.url)
    bolt = make_bolt(config, IDENTITY, Listeners(ignore, no_command, click=waiting.decisions.handle))
    async with SocketMode(bolt, config, clock, SlackHealth(clock, is_all=True)).running():
        await double.sockets.connected.wait()
        acknowledged = await double.sockets.deliver("interactive", waiting.payload("approve", message))

    assert acknowledged is not None
    assert await waiting.statuses() != ["waiting"]


@pytest.mark.parametrize("url", ["", "https://bot.example.com"])
def test_the_manifest_turns_interactivity_on(url: str) -> None:
    written = json.loads(manifest("Throughline", url))["settings"]["interactivity"]

    assert written == {"is_enabled": True} | ({"request_url": f"{url}/slack/events"} if url else {})


CHANNEL = "C0GENERAL"


async def start(ask: Asked, text: str, **where: str) -> Said:
    """Take a message that begins a thread."""
    said = say(text, **({"channel": CHANNEL} | where))
    await ask.stage.take(said)
    return said


async def reply(ask: Asked, thread: Said, user: str = ANNA) -> None:
    await ask.stage.take(say("and then?", channel=thread.channel, thread_ts=thread.ts, user=user))


async def forget_whose(ask: Asked) -> None:
    """Delete what is kept of deliveries, as maintenance does with old ones."""
    await ask.stage.rows("delete from slack_deliveries")
    await ask.stage.rows("delete from slack_events")


async def test_it_is_the_thread_its_asker_wrote_in_last_though_others_wrote_elsewhere(ask: Asked) -> None:
    berts, annas = await start(ask, "berts plan", user=BERT), await start(ask, "annas plan")
    await reply(ask, berts)
    await reply(ask, annas)
    await reply(ask, berts, BERT)

    shown = await ask("stop", channel=CHANNEL)

    assert shown.text == 'Stopped: "U0ANNA001: annas plan".'
    stopped = await ask.stage.rows("select input ->> 'content' from runs where status = 'cancelled' order by seq")
    assert stopped == [("U0ANNA001: annas plan",), ("U0ANNA001: and then?",)]
    assert "berts plan" in (await ask("context", channel=CHANNEL, user=BERT)).text


async def test_a_thread_that_was_left_is_told_and_no_other_is_acted_upon(ask: Asked) -> None:
    older, newer = await start(ask, "older"), await start(ask, "newer")
    assert '"U0ANNA001: newer"' in (await ask("new", channel=CHANNEL)).text

    answers = [(await ask(verb, channel=CHANNEL)).text for verb in ("stop", "new", "context", "summarize")]

    assert answers == [PARTED] * 4
    assert await ask.stage.rows("select 1 from runs where status = 'cancelled'") == []
    assert await ask.stage.rows("select thread_ts from slack_conversations where session_id is not null") == [
        (older.ts,)
    ]
    await reply(ask, newer)
    assert '"U0ANNA001: and then?"' in (await ask("context", channel=CHANNEL)).text


async def test_an_archived_session_does_not_count(ask: Asked) -> None:
    await start(ask, "older", channel="D0ANNA001")
    await start(ask, "newer", channel="D0ANNA001")
    await ask.stage.rows("update sessions set archived = true where title = 'newer'")

    assert (await ask("stop")).text == PARTED


async def test_long_after_their_last_message_it_is_the_last_used_direct_thread(ask: Asked) -> None:
    await start(ask, "older", channel="D0ANNA001")
    await start(ask, "newer", channel="D0ANNA001")
    await forget_whose(ask)

    assert 'newer"' in (await ask("stop")).text
    assert (await ask("stop", user="U0CLARA01")).text == NOTHING_HERE


async def test_long_after_their_last_message_in_a_channel_it_is_shown_and_not_acted_upon(ask: Asked) -> None:
    berts = await start(ask, "berts plan", user=BERT)
    await reply(ask, berts)
    await start(ask, "annas plan")
    await start(ask, "berts own", user=BERT)
    await forget_whose(ask)
    await reply(ask, berts, BERT)

    answers = [(await ask(verb, channel=CHANNEL)).text for verb in ("stop", "new", "summarize")]

    assert answers == [FORGOTTEN] * 3
    assert "berts plan" in (await ask("context", channel=CHANNEL)).text
    assert await ask.stage.rows("select 1 from runs where status = 'cancelled'") == []
    assert (await ask("stop", channel=CHANNEL, user="U0CLARA01")).text == NOTHING_HERE


async def test_a_person_who_takes_part_no_more_is_told_of_no_conversation(ask: Asked) -> None:
    await start(ask, "plans")
    await ask.stage.rows("delete from slack_participants")

    assert (await ask("context", channel=CHANNEL)).text == NOTHING_HERE


async def test_an_error_names_the_thread_too(ask: Asked) -> None:
    await start(ask, "plans", channel="D0ANNA001")
    ask.refuses.set()

    assert (await ask("summarize")).text == ':warning: "plans": The summary model is away.'
