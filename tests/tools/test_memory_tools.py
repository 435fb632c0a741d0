"""The tools `remember` and `forget`, called by a model in turns around a real database."""

import json
from dataclasses import replace

import pytest

from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.stage import AGENT, Stage, make_tool_box, open_stage
from throughline.db.database import Database
from throughline.domain.basic_types import UserId
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.recall import MAX_MEMORY_CHARACTERS
from throughline.domain.run import RunStatus
from throughline.tools.memory import make_memory_tools

OFFICE = "My office is in Kungsgatan 12."


@pytest.fixture
async def stage(database: Database) -> Stage:
    agent = replace(AGENT, tools=("remember", "forget"))
    return await open_stage(database, agent=agent, tools=make_tool_box(further=make_memory_tools(database.memories)))


async def call(stage: Stage, name: str, **arguments: object) -> tuple[str, bool]:
    """Play a turn whose model makes this call; return its result and whether it is an error."""
    stage.model.script(Call((ToolCall("c1", name, json.dumps(arguments)),)), Say("Done."))
    run = await stage.turn("Please.")
    assert run.status is RunStatus.SUCCEEDED
    result = next(message for message in reversed(await stage.messages()) if message.role is Role.TOOL)
    return text_of(result.content), result.metadata.get("is_error") is True


async def kept(stage: Stage, owner_id: UserId | None = None) -> dict[str, str]:
    """Return the user's memories: texts by their ids."""
    page = await stage.database.memories.list(owner_id or stage.owner_id, 50, None)
    return {str(memory.id): memory.text for memory in page.items}


async def test_what_is_remembered_is_a_memory_of_the_owner(stage: Stage) -> None:
    result, is_error = await call(stage, "remember", text=OFFICE)

    ((memory_id, text),) = (await kept(stage)).items()
    assert (text, is_error) == (OFFICE, False)
    assert memory_id in result


@pytest.mark.parametrize("form", ["{}", "[memory {}]", OFFICE])
async def test_a_memory_is_forgotten_by_its_id_or_its_exact_text(stage: Stage, form: str) -> None:
    await stage.database.memories.create(stage.owner_id, "Rex is a dog.", {})
    memory = await stage.database.memories.create(stage.owner_id, OFFICE, {})

    result = await call(stage, "forget", memory=form.format(memory.id))

    assert result == ("The memory is deleted.", False)
    assert list((await kept(stage)).values()) == ["Rex is a dog."]


async def test_what_the_database_cannot_store_is_replaced_in_a_memory(stage: Stage) -> None:
    result = await call(stage, "remember", text="a\x00b")

    assert not result[1]
    assert list((await kept(stage)).values()) == ["a\N{REPLACEMENT CHARACTER}b"]
    assert await call(stage, "forget", memory="a\x00b") == ("The memory is deleted.", False)


@pytest.mark.parametrize("form", ["{}", OFFICE, "My office"])
async def test_another_users_memory_and_other_text_are_not_forgotten(stage: Stage, form: str) -> None:
    other = await stage.database.users.get_or_create("berta")
    memory = await stage.database.memories.create(other, OFFICE, {})

    result, is_error = await call(stage, "forget", memory=form.format(memory.id))

    assert is_error
    assert result.startswith("The user has no such memory.")
    assert await kept(stage, other) == {str(memory.id): OFFICE}


@pytest.mark.parametrize("text", ["", " \n", "x" * (MAX_MEMORY_CHARACTERS + 1)])
async def test_no_empty_and_no_long_text_is_remembered(stage: Stage, text: str) -> None:
    _, is_error = await call(stage, "remember", text=text)

    assert is_error
    assert await kept(stage) == {}


async def test_in_slack_nothing_is_remembered_or_forgotten(stage: Stage, database_url: str) -> None:
    await stage.database.memories.create(stage.owner_id, OFFICE, {})
    await run_sql(database_url, "update sessions set source = 'slack'")

    results = [await call(stage, "remember", text="Rex is a dog."), await call(stage, "forget", memory=OFFICE)]

    assert all(is_error and "Other people" in text for text, is_error in results)
    assert list((await kept(stage)).values()) == [OFFICE]


async def test_neither_call_is_repeated_after_a_crash(stage: Stage) -> None:
    tools = stage.dependencies.tools

    assert not any(tools.is_repeatable(name) for name in ("remember", "forget"))
