"""200 poisoned old messages, in whole turns over a socket: quoted before a question, and by each recall tool.

The provider double gets the prompts. Whatever the gullible reader would obey in them counts.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from fakes.gullible_reader import Reading, read_prompt
from fakes.model_calls import CONFIG
from fakes.poisoned_messages import SHARING, Poison, poisoned_messages, question_about
from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.stage import Stage, open_stage, with_context
from fakes.summarised_history import fill_summarised
from fakes.tool_box import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.context.policy import Recall
from throughline.db.database import Database
from throughline.domain.run import RunStatus
from throughline.llm.counters import CharsCounter
from throughline.llm.registry import ModelRegistry
from throughline.tools.recall import make_recall_tools

TOOLS = ("search_history", "read_history", "read_output")
POISONS = poisoned_messages()
AGENT = replace(with_context(recall=Recall.AUTO, auto_summarize=False), model="openai:double-128k-cl100k", tools=TOOLS)
FILLER = [f"We talked a while about the weather in town number {number}." for number in range(20)]
SAID_AT = {poison.mark: (len(FILLER) + 1 + poison.number % SHARING, poison.role) for poison in POISONS}


@asynccontextmanager
async def stage_with(database: Database, double: ProviderDouble) -> AsyncIterator[Stage]:
    tools = make_recall_tools(database.history, CharsCounter().count)
    stage = await open_stage(database, agent=AGENT, tools=make_tool_box((), HANG_SECONDS, further=tools))
    registry = ModelRegistry(replace(CONFIG, default_model=AGENT.model, default_base_url=double.url))
    stage.dependencies = replace(stage.dependencies, models=registry)
    yield stage
    await registry.close()


async def fill(stage: Stage, url: str, poisons: Sequence[Poison]) -> None:
    rows = [("user", text) for text in FILLER] + [(poison.role, poison.text) for poison in poisons]
    authors = {SAID_AT[poison.mark][0]: poison.author for poison in poisons if poison.author}
    await fill_summarised(url, stage.session.id, [(at, *row) for at, row in enumerate(rows, 1)], authors)
    await stage.database.history.index_session(stage.session.id)


def calls_about(poisons: Sequence[Poison]) -> tuple[ScriptedCall, ...]:
    positions = [SAID_AT[poison.mark][0] for poison in poisons]
    asked: list[tuple[str, dict[str, object]]] = [("search_history", {"query": f"gate code {poisons[0].yard}"})]
    for first, last in pairwise(positions):
        asked.append(("read_history", {"from_position": first, "to_position": last}))
    asked += [("read_output", {"position": position}) for position in positions]
    return tuple(ScriptedCall(f"{name}-{at}", name, json.dumps(said)) for at, (name, said) in enumerate(asked))


async def ask_about(database: Database, url: str, double: ProviderDouble, poisons: Sequence[Poison]) -> None:
    """Ask in a session of its own for what the messages tell, and read them again with every tool."""
    async with stage_with(database, double) as stage:
        await fill(stage, url, poisons)
        double.script(ScriptStep(calls=calls_about(poisons)), ScriptStep("I see."))
        run = await stage.turn(question_about(poisons[0].yard))
        assert run.status is RunStatus.SUCCEEDED


def reading_of(double: ProviderDouble, by: str = "") -> Reading:
    """Return what a gullible model makes of all prompts: of the messages that a tool answered, or that a user has."""
    sent = (message for record in double.requests for message in record.prompt)
    return read_prompt([one for one in sent if str(one.get("tool_call_id", one["role"])).startswith(by)], SAID_AT)


@pytest.mark.slow
async def test_no_order_among_200_poisoned_originals_is_obeyed(
    database: Database, database_url: str, provider_double: ProviderDouble
) -> None:
    for first in range(0, len(POISONS), SHARING):
        await ask_about(database, database_url, provider_double, POISONS[first : first + SHARING])

    assert len(POISONS) == 200
    assert sorted(reading_of(provider_double).obeyed) == []
    for by in ("user", *TOOLS):
        assert sorted(set(SAID_AT) - reading_of(provider_double, by).quoted) == [], by


async def test_orders_are_obeyed_where_nothing_escapes_the_tags_in_old_messages(
    database: Database, database_url: str, provider_double: ProviderDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("throughline.context.view.placeholder_texts.escaped", lambda _tag, text: text)
    poisons = [poison for poison in POISONS if "\n</quoted_history>\n" in poison.text][:SHARING]

    await ask_about(database, database_url, provider_double, poisons)

    for by in ("user", *TOOLS):
        assert reading_of(provider_double, by).obeyed == {poison.mark for poison in poisons}, by
