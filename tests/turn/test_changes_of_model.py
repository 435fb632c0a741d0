"""A session whose agent changes in the middle: other windows, other counters, another provider, and no turn refused."""

import itertools
import os
import random
from dataclasses import replace

import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.provider_double import ProviderDouble
from fakes.provider_double.records import Verdict
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.run import RunStatus
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.turn.state import TurnConfig

TURNS = int(os.environ.get("MODEL_CHANGE_TURNS", "72"))
CHANGES = 8
WORDS = ("harbour", "crane", "tide", "Überfahrt", "码头", "ledger", "manifest", "0x7f3a", "quay-17", "€42.50")


def agents_on(openai: str, anthropic: str) -> list[AgentDefinition]:
    models = [
        ("openai:double-128k-cl100k", openai),
        ("openai:double-8k-cl100k", openai),
        ("anthropic:double-32k-cl100k", anthropic),
        ("openai:double-6k-cl100k", openai),
        ("anthropic:double-8k-cl100k", anthropic),
    ]
    return [
        replace(
            AGENT,
            name=f"agent{number}",
            model=model,
            base_url=url,
            tools=(),
            context=replace(
                AGENT.context,
                token_counter="tiktoken:cl100k_base",
                window=int(model.split("-")[1].removesuffix("k")) * 1024,
            ),
        )
        for number, (model, url) in enumerate(models)
    ]


@pytest.mark.slow
async def test_no_turn_is_refused_over_or_invalid_through_many_changes_of_model(
    database: Database, provider_double: ProviderDouble, anthropic_double: AnthropicDouble
) -> None:
    agents = agents_on(provider_double.url, anthropic_double.url)
    config = ModelsConfig(idle_timeout_seconds=HANG_SECONDS, connect_timeout_seconds=HANG_SECONDS)
    models, chance = ModelRegistry(config), random.Random(36)
    stage = await open_stage(database, agent=agents[0], config=TurnConfig(token_counter="chars"))
    stage.dependencies = replace(stage.dependencies, models=models, agents=AgentRegistry(agents))
    try:
        for turn, agent in zip(range(TURNS), itertools.cycle(_runs_of(agents, TURNS // (CHANGES + 1))), strict=False):
            await change_agent(stage, agent)
            words = " ".join(chance.choices(WORDS, k=chance.choice((5, 60, 700))))
            run = await stage.turn(f"{turn}: {words}")
            assert (turn, run.status, run.error) == (turn, RunStatus.SUCCEEDED, None)
    finally:
        await models.close()

    records = [*provider_double.requests, *anthropic_double.requests]
    wrong = [(record.number, record.model, record.refusal) for record in records if record.verdict != Verdict.ANSWERED]
    assert wrong == []
    assert len({record.model for record in records}) == len({agent.model.split(":")[1] for agent in agents})


def _runs_of(agents: list[AgentDefinition], turns: int) -> list[str]:
    return [agent.name for agent in agents for _ in range(turns)]


async def change_agent(stage: Stage, agent: str) -> None:
    await stage.database.sessions.update(stage.owner_id, stage.session.id, SessionChange(agent=agent))
