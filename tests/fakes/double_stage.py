"""A whole turn's stage whose models are those of a provider double, asked over its wire."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from fakes.provider_double import ProviderDouble, RequestRecord, Verdict
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.ports.hooks import Tools

CONFIG = ModelsConfig(idle_timeout_seconds=HANG_SECONDS, connect_timeout_seconds=HANG_SECONDS)


def agent_on(double: ProviderDouble, model: str, **context: object) -> AgentDefinition:
    """Return the test agent without tools on a model of the double; `context` changes its context policy."""
    changed = replace(AGENT.context, token_counter="tiktoken:cl100k_base", **context)  # type: ignore[arg-type]  # fields by name
    return replace(AGENT, model=model, base_url=double.url, tools=(), context=changed)


@asynccontextmanager
async def open_double_stage(
    database: Database, agent: AgentDefinition, *, tools: Tools | None = None
) -> AsyncIterator[Stage]:
    """Open a stage with real model clients; they are closed behind the block."""
    models = ModelRegistry(CONFIG)
    stage = await open_stage(database, agent=agent, tools=tools)
    stage.dependencies = replace(stage.dependencies, models=models)
    try:
        yield stage
    finally:
        await models.close()


def turn_requests(double: ProviderDouble) -> Sequence[RequestRecord]:
    """Return the requests for answers, in order."""
    return [record for record in double.requests if not record.is_summary]


def refusals(double: ProviderDouble) -> Sequence[tuple[int, str, str]]:
    """Return number, verdict and reason of each request that the double did not answer."""
    unanswered = [record for record in double.requests if record.verdict is not Verdict.ANSWERED]
    return [(record.number, record.verdict.value, record.refusal) for record in unanswered]
