"""The whole service beside the double: a message in, an answer out, on every way in and through every death."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.pooler import environment_of
from fakes.raw_sql import end_leases, until_sql
from fakes.service_process import free_port, run_service, start_program
from fakes.slack_double import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    Person,
    Sender,
    SlackDouble,
    say,
)
from fakes.slack_double.payloads import app_mention, message, slash_command
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database

pytestmark = pytest.mark.slow


@pytest.fixture
def over_http(database_url: str, slack: SlackDouble) -> Mapping[str, str]:
    return {
        **environment_of(database_url),
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_API_URL": slack.url,
        "LEASE_SECONDS": "4",
        "LOG_FORMAT": "json",
    }


async def until_posted(slack: SlackDouble, count: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while len([message for message in slack.workspace.posted if not message.is_streaming]) < count:
            await asyncio.sleep(0.05)


async def test_a_message_over_http_is_answered_in_its_thread(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble
) -> None:
    said = say("What is 6 * 7?")
    async with run_service(tmp_path, over_http) as service:
        assert (await Sender(service.client).deliver(message(said))).status == 200
        await until_posted(slack, 1)

    answer = slack.workspace.posted[0]
    assert answer.thread_ts == said.ts
    assert "42" in answer.text
    log = service.log.read_text()
    assert "6 * 7" not in log
    assert BOT_TOKEN not in log
    assert SIGNING_SECRET not in log


async def test_a_message_over_socket_mode_is_answered(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble
) -> None:
    settings = {**over_http, "SLACK_SIGNING_SECRET": "", "SLACK_APP_TOKEN": APP_TOKEN}
    process = await start_program(tmp_path, settings, "slack", log=tmp_path / "log")
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await slack.sockets.connected.wait()
        assert await slack.sockets.deliver("events_api", message(say("What is 6 * 7?"))) is not None
        await until_posted(slack, 1)
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert "42" in slack.workspace.posted[0].text


async def test_messages_acknowledged_by_a_service_that_was_killed_are_answered_once(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble, database_url: str
) -> None:
    port = free_port()
    events = [message(say(f"What is {n} * 7?", channel=f"D0{n:07}", user=f"U0{n:07}")) for n in range(10)]
    async with run_service(tmp_path, over_http, port=port) as service:
        await asyncio.gather(*(Sender(service.client).once(event) for event in events))
        await service.kill()
    await end_leases(database_url)
    async with run_service(tmp_path, over_http, port=port) as service:
        await asyncio.gather(*(Sender(service.client).once(event, retry=1) for event in events))
        await until_posted(slack, 10)
        await asyncio.sleep(1)

    assert len(slack.workspace.posted) == 10
    assert len({answer.channel for answer in slack.workspace.posted}) == 10


async def test_a_thread_goes_on_over_rest_and_its_history_has_both(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble, database_url: str
) -> None:
    slack.workspace.people["U0ANNA001"] = Person("U0ANNA001", "Anna", "anna@example.com")
    settings = {**over_http, "SLACK_LINK_BY_EMAIL": "true", "BOOTSTRAP_API_KEY": "a-key-of-many-characters"}
    said = say("My name is Anna.")
    headers = {"Authorization": "Bearer a-key-of-many-characters", "On-Behalf-Of": "anna@example.com"}
    async with run_service(tmp_path, settings) as service:
        await Sender(service.client).deliver(message(said))
        await until_posted(slack, 1)
        await until_sql(database_url, "select 1 from slack_users where linked_by = 'email'")
        listed = (await service.client.get("/v1/sessions", headers=headers)).json()["data"]
        path = f"/v1/sessions/{listed[0]['id']}/messages"
        sent = await service.client.post(path, json={"content": "And over REST?"}, headers=headers)
        await Sender(service.client).deliver(message(say("And again in Slack.", thread_ts=said.ts)))
        await until_posted(slack, 2)
        history = (await service.client.get(path, headers=headers)).json()["data"]

    assert sent.status_code == 200
    assert [(item["source"], item["role"]) for item in history if item["role"] == "user"] == [
        ("slack", "user"),
        ("api", "user"),
        ("slack", "user"),
    ]
    assert len(slack.workspace.posted) == 2, "what was asked over REST is answered there"


async def test_agent_context_and_help_answer_their_asker_alone(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble
) -> None:
    said = say(f"<@{BOT_USER}> hello", channel="C0GENERAL")
    response_url = slack.url.replace("/api/", "/response/anna")
    async with run_service(tmp_path, over_http) as service:
        sender = Sender(service.client)
        await sender.deliver(app_mention(said))
        await until_posted(slack, 1)

        def command(text: str, user: str) -> str:
            return slash_command(text, user=user, channel="C0GENERAL", response_url=response_url)

        context = await sender.form(command("context", "U0ANNA001"))
        stranger = await sender.form(command("context", "U0BERT001"))
        helped = await sender.form(command("what?", "U0ANNA001"))

    assert (context.status, stranger.status, helped.status) == (200, 200, 200)
    assert "N messages [█" in json.loads(context.text)["blocks"][1]["text"]["text"]
    assert "no conversation here" in stranger.text
    assert "/agent summarize" in helped.text


async def test_a_session_begun_over_rest_goes_on_in_slack_with_one_history(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble, database: Database
) -> None:
    async with run_service(tmp_path, over_http) as service:
        session = await service.new_session()
        await service.send(session, "My name is Anna.")
        local = await database.users.get_or_create("local")
        code = await database.open_slack("assistant").links.new_code(local)
        sender = Sender(service.client)
        await sender.deliver(message(say("Hello")))
        await until_posted(slack, 1)
        told = [
            await sender.form(slash_command(text, user="U0ANNA001", channel="D0ANNA001", response_url=""))
            for text in (f"link {code}", f"resume {session}")
        ]
        await sender.deliver(message(say("What is 6 * 7?")))
        await until_posted(slack, 2)
        history = await service.history(session)

    assert told[1].text == 'Your next message here (outside a thread) goes on with "My name is Anna.".'
    assert [(item["source"], item["role"]) for item in history if item["role"] == "user"] == [
        ("api", "user"),
        ("slack", "user"),
    ]
    assert "42" in slack.workspace.posted[1].text
