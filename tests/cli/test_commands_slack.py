import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fakes.command_stage import FakeWorld
from fakes.raw_sql import run_sql
from throughline.cli.dependencies import FrontEndOptions, LocalOptions

Throughline = Callable[..., Result]
LINKED = """
    with guest as (insert into users (id, name) values (gen_random_uuid(), 'anna') returning id)
    insert into slack_users (team_id, slack_user_id, user_id, linked_by)
    select 'T0DOUBLE1', person, id, 'code' from guest, unnest(array['U0ANNA001', 'U0BERT001']) person
"""


def test_slack_alone_takes_part_and_hands_its_options_on(
    world: FakeWorld, throughline: Throughline, tmp_path: Path
) -> None:
    throughline("slack")
    throughline("slack", "--data-dir", str(tmp_path), "--no-worker")

    assert world.alone == [FrontEndOptions("slack"), FrontEndOptions("slack", tmp_path, no_worker=True)]


def test_the_manifest_is_printed_for_socket_mode_or_for_an_address(world: FakeWorld, throughline: Throughline) -> None:
    plain = json.loads(throughline("slack", "manifest").stdout)
    named = json.loads(throughline("slack", "manifest", "--name", "Bot", "--url", "https://bot.example.com").stdout)

    assert plain["display_information"]["name"] == "Throughline"
    assert "url" not in plain["features"]["slash_commands"][0]
    assert named["display_information"]["name"] == "Bot"
    assert named["features"]["slash_commands"][0]["url"] == "https://bot.example.com/slack/events"
    assert world.alone == []


def test_an_address_that_slack_cannot_reach_is_refused(throughline: Throughline) -> None:
    refused = throughline("slack", "manifest", "--url", "http://localhost:8000")

    assert refused.exit_code == 2
    assert "https://" in refused.stderr


async def test_a_link_code_is_printed_as_it_is_typed(
    world: FakeWorld, throughline: Throughline, database_url: str, tmp_path: Path
) -> None:
    world.database_url = database_url
    linked = await asyncio.to_thread(throughline, "slack", "link", "--user", "anna", "--data-dir", str(tmp_path))

    assert re.fullmatch(r"/agent link \S+\n", linked.stdout)
    assert "30 minutes" in linked.stderr
    assert world.opened == [LocalOptions(tmp_path)]
    assert await run_sql(database_url, "select name from users join slack_link_codes c on c.user_id = users.id") == [
        ("anna",)
    ]


async def test_who_was_unlinked_is_printed_one_a_line(
    world: FakeWorld, throughline: Throughline, database_url: str, tmp_path: Path
) -> None:
    world.database_url = database_url
    await run_sql(database_url, LINKED)
    one = await asyncio.to_thread(throughline, "slack", "unlink", "--slack-user", "T0DOUBLE1:U0ANNA001")
    rest = await asyncio.to_thread(throughline, "slack", "unlink", "--user", "anna", "--data-dir", str(tmp_path))
    none = await asyncio.to_thread(throughline, "slack", "unlink", "--slack-user", "U0BERT001")

    assert one.stdout == "T0DOUBLE1:U0ANNA001\n"
    assert rest.stdout == "T0DOUBLE1:U0BERT001\n"
    assert world.opened[1] == LocalOptions(tmp_path)
    assert "is linked to nobody" in none.stderr


@pytest.mark.parametrize(
    "options", [(), ("--user", "anna", "--slack-user", "U0ANNA001"), ("--slack-user", "T0DOUBLE1:")]
)
def test_either_a_user_or_a_slack_user_is_unlinked(
    world: FakeWorld, throughline: Throughline, options: tuple[str, ...]
) -> None:
    refused = throughline("slack", "unlink", *options)

    assert refused.exit_code == 2
    assert "--slack-user" in refused.stderr
    assert world.opened == []
