"""Overrides through the Python client: in the form of REST, checked at once, and part of what a key means."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fakes.pooler import urls_of
from fakes.scripted_model import Say
from fakes.stage import AGENT, Stage, open_stage
from throughline.client import Client, connect
from throughline.db.database import Database
from throughline.domain.errors import IdempotencyKeyReused, InvalidInput
from throughline.domain.prompt import OverrideField, Overrides, ResponseFormat
from throughline.turn.take_turn import take_turn

SCHEMA = {"type": "object"}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "name": "thing"}}
NESTED: object = json.loads('{"items":' * 200 + "{}" + "}" * 200)


def schema_of(schema: object) -> object:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database, agent=replace(AGENT, overrides=frozenset(OverrideField)))


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[Client]:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna", pool_size=4) as opened:
        yield opened


async def test_overrides_reach_the_worker(stage: Stage, client: Client) -> None:
    stage.model.script(Say("no"), Say("neither"))
    session = await client.new_session()

    run = await client.submit(session.id, "hi", overrides={"instructions": "Be brief.", "response_format": FORMAT})
    await take_turn(stage.turn_start(await stage.claim()))
    ended = await client.wait(run.id)

    assert run.input.overrides == Overrides(
        instructions="Be brief.", response_format=ResponseFormat({"type": "object"}, "thing")
    )
    assert "Be brief." in stage.model.requests[0].prompt.system
    assert ended.run.error is not None
    assert (ended.run.error.type, ended.text) == ("answer_not_in_format", "neither")


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"tools": []}, "overrides.tools"),
        ({"temperature": 3}, "overrides.temperature"),
        ({"temperature": {1, 2}}, "overrides.temperature"),
        ({"instructions": " "}, "overrides.instructions"),
        ({"instructions": "a\x00b"}, "overrides"),
        ({"instructions": "a\ud800b"}, "overrides"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}}, "overrides."),
        (schema_of(NESTED), "overrides.response_format"),
        (schema_of({"maximum": float("inf")}), "overrides.response_format"),
        (schema_of({"default": float("nan")}), "overrides.response_format"),
        (["model"], "overrides"),
    ],
)
async def test_wrong_overrides_are_refused_with_their_field(client: Client, overrides: object, field: str) -> None:
    session = await client.new_session()

    with pytest.raises(InvalidInput) as refused:
        await client.submit(session.id, "hi", overrides=overrides)  # type: ignore[arg-type]  # that is the test

    assert refused.value.field.startswith(field)


async def test_a_key_with_other_overrides_is_another_request(client: Client) -> None:
    session = await client.new_session()

    async def submit(**overrides: object) -> object:
        return (await client.submit(session.id, "hi", idempotency_key="k", overrides=overrides)).id

    first = await submit(temperature=0, instructions="Be brief.")

    assert await submit(instructions="Be brief.", temperature=0) == first
    with pytest.raises(IdempotencyKeyReused):
        await submit(temperature=1)
