"""Whoever takes part in a channel's session reaches it at any process, whether or not Slack is set up for that one."""

from pathlib import Path

import httpx
import pytest

from fakes.pooler import environment_of
from fakes.raw_sql import run_sql
from fakes.service_process import run_command, run_service, run_worker
from fakes.slack_double import TEAM
from fakes.slack_inbox import take
from throughline.db.database import Database
from throughline.db.slack.people import SlackId
from throughline.domain.basic_types import SessionId
from throughline.domain.keys import NewKey, Scope

pytestmark = pytest.mark.slow
ANNA = "U0ANNA001"


async def channel_session(database: Database, name: str) -> SessionId:
    """Have this user write in a channel; return the channel's session."""
    links = database.open_slack("assistant").links
    await links.link_by_code(SlackId(TEAM, ANNA), await links.new_code(await database.users.get_or_create(name)))
    return await take(database, "What is 6 * 7?", channel="C0GENERAL", user=ANNA)


async def test_the_command_line_goes_on_with_a_session_of_a_channel(
    folder: Path, database: Database, database_url: str
) -> None:
    session = await channel_session(database, "local")
    async with run_worker(folder, environment_of(database_url)):
        code, told, complained = await run_command(
            folder, environment_of(database_url), "chat", "--session", str(session), typed="What is 2 + 3?\n"
        )

    assert code == 0, complained
    assert "5" in told
    assert await run_sql(database_url, "select source from runs order by seq") == [("slack",), ("cli",)]


async def test_a_service_without_slacks_token_serves_participants_and_nobody_else(
    folder: Path, database: Database, database_url: str
) -> None:
    session = await channel_session(database, "anna")
    scopes = frozenset({Scope.READ, Scope.WRITE})
    secrets = [(await database.keys.create(NewKey(name, f"of {name}", scopes))).secret for name in ("anna", "bert")]
    async with run_service(folder, environment_of(database_url)) as service:
        answers = [
            await service.client.post(
                f"/v1/sessions/{session}/messages",
                json={"content": "What is 2 + 3?"},
                headers={"Authorization": f"Bearer {secret}"},
            )
            for secret in secrets
        ]

    assert [answer.status_code for answer in answers] == [httpx.codes.OK, httpx.codes.NOT_FOUND]
