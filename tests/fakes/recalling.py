"""A session whose summary covers a planted fact, a question for it, and what the prompt of a turn quotes."""

from dataclasses import replace

from fakes.scripted_model import Say, ScriptedModel
from fakes.stage import Stage, open_stage, with_context
from fakes.summarised_history import fill_summarised
from throughline.agents.definition import AgentDefinition
from throughline.context.policy import Recall
from throughline.db.database import Database
from throughline.domain.events import HistoryQuoted
from throughline.domain.run import RunStatus

FACT = "The gate code of the boat yard is 4417."
QUESTION = "What was the gate code of the boat yard?"
FILLER = [f"We talked a while about the weather in town number {number}." for number in range(40)]


def talk(*planted: str) -> list[tuple[int, str, str]]:
    texts = [*FILLER[:20], *planted, *FILLER[20:]]
    return [(at, "user" if at % 2 else "assistant", text) for at, text in enumerate(texts, 1)]


def agent(**context: object) -> AgentDefinition:
    return replace(with_context(**{"recall": Recall.AUTO, "auto_summarize": False, **context}), tools=("calculator",))


async def open_recalling(
    database: Database, database_url: str, *planted: str, model: ScriptedModel | None = None, **context: object
) -> Stage:
    stage = await open_stage(database, agent=agent(**context), model=model)
    await fill_summarised(database_url, stage.session.id, talk(*(planted or (FACT,))))
    await database.history.index_session(stage.session.id)
    return stage


async def quoted(stage: Stage, text: str) -> list[HistoryQuoted]:
    """Play a turn with this message and return its events that tell of quotations."""
    stage.model.script(Say("Here."))
    run = await stage.turn(text)
    assert run.status is RunStatus.SUCCEEDED
    return [event.event for event in await stage.events(run) if isinstance(event.event, HistoryQuoted)]
