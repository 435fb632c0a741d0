"""A person who leaves a channel takes no part in its sessions any more, unless they are there by another Slack id."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from fakes.api_stage import KEYED, set_stage
from fakes.pooler import environment_of
from fakes.raw_sql import hold_rows
from fakes.service_process import free_port, run_service, start_program
from fakes.silent_metrics import delete_old_rows
from fakes.slack_delivery import SlackStage, begun
from fakes.slack_double import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    TEAM,
    Said,
    Sender,
    SlackDouble,
    say,
    sign,
)
from fakes.slack_double.payloads import app_mention, left, message
from fakes.waiting import HANG_SECONDS, until, until_found
from throughline.db.database import Database
from throughline.domain.basic_types import UserId
from throughline.slack.store.people import SlackId

CHANNEL, OTHER = "C0GENERAL", "C0OTHER01"
ANNA, BERT, TWIN = "U0ANNA001", "U0BERT001", "U0TWIN001"


async def write(stage: SlackStage, user: str, *, channel: str = CHANNEL, thread_ts: str = "") -> Said:
    said = say(f"<@{BOT_USER}> hello", user=user, channel=channel, thread_ts=thread_ts)
    assert (await stage.sender.once(app_mention(said))).status == 200
    return said


async def leave(stage: SlackStage, user: str, *, team: str = TEAM, channel: str = CHANNEL) -> None:
    assert (await stage.sender.once(left(channel, user=user, home=team))).status == 200


async def taking_part(stage: SlackStage) -> list[tuple[object, ...]]:
    """Return who takes part, and in how many sessions."""
    statement = """
        select u.name, count(distinct p.session_id) from slack_participants p
        join slack_users s using (team_id, slack_user_id) join users u on u.id = s.user_id group by 1 order by 1
    """
    return await stage.rows(statement)


async def link(stage: SlackStage, user: UserId, *slack_users: str) -> None:
    for slack_user in slack_users:
        await stage.slack.links.link_by_code(SlackId(TEAM, slack_user), await stage.slack.links.new_code(user))


async def test_who_left_a_channel_is_taken_out_of_its_sessions_and_nobody_else_is(stage: SlackStage) -> None:
    first = await write(stage, ANNA)
    await write(stage, BERT, thread_ts=first.ts)
    await write(stage, ANNA)
    await write(stage, ANNA, channel=OTHER)

    await leave(stage, ANNA)

    assert await taking_part(stage) == [(f"slack:{TEAM}:{ANNA}", 1), (f"slack:{TEAM}:{BERT}", 1)]


async def test_a_session_that_its_thread_has_left_is_closed_to_them_too(stage: SlackStage) -> None:
    said = await write(stage, ANNA)
    await stage.slack.conversations.leave(TEAM, CHANNEL, said.ts)

    await leave(stage, ANNA)

    assert await taking_part(stage) == []


async def test_over_rest_they_find_nothing_any_more(stage: SlackStage, database: Database) -> None:
    await link(stage, await database.users.get_or_create("anna"), ANNA)
    await write(stage, ANNA)
    ((session,),) = await stage.rows("select id from sessions")
    api = set_stage(database, KEYED)
    async with api.client(key=await api.key("anna")) as anna:
        before = await anna.get(f"/v1/sessions/{session}")
        await leave(stage, ANNA)
        after = await anna.get(f"/v1/sessions/{session}")

    assert (before.status_code, after.status_code) == (httpx.codes.OK, httpx.codes.NOT_FOUND)


async def test_by_another_id_they_stay_until_that_one_leaves_too(stage: SlackStage, database: Database) -> None:
    await link(stage, await database.users.get_or_create("anna"), ANNA, TWIN)
    said = await write(stage, ANNA)
    await write(stage, TWIN, thread_ts=said.ts)

    await leave(stage, ANNA)
    stayed = await taking_part(stage)
    await leave(stage, TWIN)

    assert stayed == [("anna", 1)]
    assert await taking_part(stage) == []


async def test_the_order_in_which_both_ids_leave_keeps_nobody_in(stage: SlackStage, database: Database) -> None:
    await link(stage, await database.users.get_or_create("anna"), ANNA, TWIN)
    said = await write(stage, ANNA)
    await write(stage, TWIN, thread_ts=said.ts)

    await leave(stage, TWIN)
    await leave(stage, ANNA)

    assert await taking_part(stage) == []


async def test_by_an_id_that_never_wrote_in_the_channel_they_do_not_stay(stage: SlackStage, database: Database) -> None:
    await link(stage, await database.users.get_or_create("anna"), ANNA, TWIN)
    await write(stage, ANNA)

    await leave(stage, ANNA)

    assert await taking_part(stage) == []


async def test_a_message_sent_before_they_left_and_delivered_after_lets_nobody_in_again(stage: SlackStage) -> None:
    late, first = say(f"<@{BOT_USER}> late", channel=CHANNEL), say(f"<@{BOT_USER}> first", channel=CHANNEL, user=BERT)
    await write(stage, ANNA)
    for user in (ANNA, BERT):
        await leave(stage, user)

    for said in (late, first):
        assert (await stage.sender.once(app_mention(said))).status == 200

    assert await taking_part(stage) == []
    assert len(await stage.run_texts()) == 3


async def test_a_departure_that_is_delivered_once_more_is_no_later_one(stage: SlackStage) -> None:
    event = left(CHANNEL, user=ANNA, home=TEAM)
    await stage.sender.once(event)
    said = say(f"<@{BOT_USER}> I am back", channel=CHANNEL)
    await stage.sender.once(event)
    await stage.sender.once(app_mention(said))

    assert await taking_part(stage) == [(f"slack:{TEAM}:{ANNA}", 1)]


@pytest.mark.parametrize("wrote_before", [True, False])
async def test_leaving_waits_for_a_message_that_is_being_taken(stage: SlackStage, *, wrote_before: bool) -> None:
    first = await write(stage, BERT)
    if wrote_before:
        await write(stage, ANNA, thread_ts=first.ts)

    async with hold_rows(stage.url, "select 1 from sessions for update"):
        taking = await begun(stage, write(stage, ANNA, thread_ts=first.ts), waiting=1)
        leaving = await begun(stage, leave(stage, ANNA), waiting=2)
    await asyncio.gather(taking, leaving)

    assert await taking_part(stage) == [(f"slack:{TEAM}:{BERT}", 1)]


async def test_when_somebody_left_is_forgotten_with_what_was_sent_before(stage: SlackStage) -> None:
    await leave(stage, ANNA)
    await delete_old_rows(stage.database)
    kept = await stage.rows("select reader_id from slack_departures")
    await stage.rows("update slack_departures set created_at = now() - interval '8 days'")
    await delete_old_rows(stage.database)

    assert kept == [(ANNA,)]
    assert await stage.rows("select 1 from slack_departures") == []


async def test_a_person_who_comes_back_and_writes_takes_part_again(stage: SlackStage) -> None:
    said = await write(stage, ANNA)
    await leave(stage, ANNA)
    await write(stage, ANNA, thread_ts=said.ts)

    assert await taking_part(stage) == [(f"slack:{TEAM}:{ANNA}", 1)]


@pytest.mark.parametrize(("user", "team"), [(BOT_USER, TEAM), (ANNA, "T0OTHER01"), ("U0NOBODY1", TEAM)])
async def test_the_bot_somebody_of_another_workspace_and_strangers_take_nobody_out(
    stage: SlackStage, user: str, team: str
) -> None:
    await write(stage, ANNA)

    await leave(stage, user, team=team)

    assert await taking_part(stage) == [(f"slack:{TEAM}:{ANNA}", 1)]


async def test_a_person_of_another_workspace_is_taken_out_by_their_own_id(stage: SlackStage) -> None:
    event = app_mention(say(f"<@{BOT_USER}> hello", channel=CHANNEL))
    event["event"]["user_team"] = "T0OTHER01"
    await stage.sender.once(event)

    await leave(stage, ANNA, team="T0OTHER01")

    assert await taking_part(stage) == []


@pytest.fixture
def settings(database_url: str, slack: SlackDouble) -> Mapping[str, str]:
    return {**environment_of(database_url), "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_API_URL": slack.url}


@asynccontextmanager
async def slack_program(folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[httpx.AsyncClient]:
    """Run `throughline slack`; yields a client of its health port."""
    port = free_port()
    environment = {**settings, "SLACK_APP_TOKEN": APP_TOKEN, "HEALTH_PORT": str(port)}
    process = await start_program(folder, environment, "slack", log=folder / "log")
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=HANG_SECONDS) as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


async def until_ready(client: httpx.AsyncClient, status: str) -> httpx.Response:
    """Return the answer that has this status."""
    found: list[httpx.Response] = []

    async def look() -> bool:
        try:
            found.append(await client.get("/health/ready"))
        except httpx.TransportError:
            return False
        return bool(found[-1].json()["status"] == status)

    await until_found(look)
    return found[-1]


@pytest.mark.slow
async def test_a_process_that_cannot_hear_slack_is_not_ready_until_it_does(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    async with slack_program(tmp_path, settings) as health:
        await until_ready(health, "ok")
        slack.workspace.revoked[APP_TOKEN] = "invalid_auth"
        await slack.sockets.close()
        told = await until_ready(health, "unavailable")
        slack.workspace.revoked.clear()
        await until_ready(health, "ok")

    assert told.status_code == 503
    assert (told.json()["checks"]["slack"], told.json()["checks"]["worker"]) == (False, True)
    assert told.json()["reasons"]["slack"].endswith("UTC: not connected, invalid_auth")


@pytest.mark.slow
async def test_the_socket_program_starts_while_slack_is_away_and_connects_when_it_is_back(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    slack.workspace.is_away = True
    async with slack_program(tmp_path, settings) as health:
        await until_found(lambda: _says(health, worker=True))
        told = (await until_ready(health, "unavailable")).json()
        slack.workspace.is_away = False
        await until_ready(health, "ok")
        await slack.sockets.deliver("events_api", message(say("What is 6 * 7?")), timeout_seconds=HANG_SECONDS)
        await until(lambda: bool(slack.workspace.posted) and not slack.workspace.posted[0].is_streaming)

    assert "Slack does not answer at" in told["reasons"]["slack"]
    assert "42" in slack.workspace.posted[0].text


async def _says(health: httpx.AsyncClient, **expected: bool) -> bool:
    try:
        checks = (await health.get("/health/ready")).json()["checks"]
    except httpx.TransportError:
        return False
    return bool(checks.items() >= expected.items())


@pytest.mark.slow
async def test_rest_is_served_while_slack_is_away_and_events_come_again(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    slack.workspace.is_away = True
    event = message(say("What is 6 * 7?"))
    body = json.dumps(event)
    async with run_service(tmp_path, {**settings, "SLACK_SIGNING_SECRET": SIGNING_SECRET}) as service:
        told = await service.client.get("/health/ready")
        answered = await service.send(await service.new_session(), "hello")
        signed = {**sign(body), "Content-Type": "application/json"}
        refused = await service.client.post("/slack/events", content=body, headers=signed)
        forged = await service.client.post("/slack/events", content=body, headers={"Content-Type": "application/json"})
        slack.workspace.is_away = False
        await until_ready(service.client, "ok")
        taken = await Sender(service.client, ack_seconds=HANG_SECONDS).once(event, retry=1)
        await until(lambda: bool(slack.workspace.posted) and not slack.workspace.posted[0].is_streaming)

    assert (told.status_code, told.json()["status"]) == (200, "degraded")
    assert "Slack does not answer at" in told.json()["reasons"]["slack"]
    assert answered.status_code == 200
    assert (refused.status_code, refused.headers["retry-after"], forged.status_code) == (503, "30", 401)
    assert taken.status == 200
    assert "42" in slack.workspace.posted[0].text


OPEN = "unauthenticated requests served"
KEY = "tl_of_this_service_alone_24"


@pytest.mark.slow
@pytest.mark.parametrize(("key", "warnings"), [({}, 1), ({"BOOTSTRAP_API_KEY": KEY}, 0)])
async def test_a_service_that_slack_reaches_through_a_proxy_says_so_while_it_has_no_key(
    tmp_path: Path, settings: Mapping[str, str], key: Mapping[str, str], warnings: int
) -> None:
    async with run_service(tmp_path, {**settings, **key, "SLACK_SIGNING_SECRET": SIGNING_SECRET}) as service:
        assert service.log.read_text().count(OPEN) == warnings


@pytest.mark.slow
async def test_a_token_that_slack_refuses_ends_the_start_with_its_sentence(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    slack.workspace.revoked[BOT_TOKEN] = "token_revoked"
    log = tmp_path / "log"
    environment = {**settings, "SLACK_SIGNING_SECRET": SIGNING_SECRET}
    process = await start_program(tmp_path, environment, "serve", "--port", str(free_port()), log=log)

    assert await process.wait() != 0
    assert "Slack does not accept SLACK_BOT_TOKEN (token_revoked)." in log.read_text()
