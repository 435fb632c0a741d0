"""Stored conversations without any turn, their compactions, and summaries of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fakes.conversations import BEHIND_ALL
from fakes.raw_sql import run_sql
from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.stage import Stage, open_stage, with_context
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.measure import count_message
from throughline.context.plan_context import ContextPlan, plan_context
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import Outcome, RunStatus
from throughline.domain.summary import CompactionOutcome, CompactionResult, Conversation
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.prepare import prepare_next

SUMMARY = "## Intent\nThe user counts [#1-#2]."
_TAG = re.compile(r"^\[#(\d+) (?:user|assistant|tool)", re.MULTILINE)


async def open_summarising(database: Database, *, own: ScriptedModel | None = None, **summary: object) -> Stage:
    """Open a stage whose agent summarises with the model `small`, falling back on its own where `own` is given."""
    policy = SummaryPolicy(model="small" if own else "", **summary)  # type: ignore[arg-type]  # fields by name
    stage = await open_stage(database, agent=with_context(window=8192, min_recent_messages=2, summary=policy))
    if own is not None:
        own.name = own.calibration_key = "own"
        stage.dependencies = replace(stage.dependencies, models=ScriptedModels(own, small=stage.model))
    return stage


async def fill(stage: Stage, turns: int, *, words: int = 30) -> None:
    """Store so many turns of one question and one answer, all in one run."""
    roles = (Role.USER, Role.ASSISTANT)
    texts = [(role, f"{role.value} {index} " + "word " * words) for index in range(turns) for role in roles]
    await store(stage, *texts)


async def store(stage: Stage, *texts: tuple[Role, str]) -> None:
    """Store these messages in one run."""
    await stage.submit("fill")
    claimed = await stage.claim()
    counter = stage.dependencies.make_counter("chars")
    for index, (role, text) in enumerate(texts):
        bare = NewMessage(role=role, content=text, source=Source.API)
        message = replace(bare, token_count=count_message(bare, counter.count), counter=counter.name)
        await stage.database.messages.append_message(claimed.lease, f"step:{index}", message)
    await stage.database.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), BEHIND_ALL)


async def compact_now(stage: Stage, instructions: str = "") -> CompactionResult:
    """Compact all but the newest messages, as a user asks for it."""
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = plan_context(make_context_input(agent, conversation, None), forced=CompactionTrigger.MANUAL)
    assert plan.decision.trigger is not None
    task = Compaction(agent, conversation, plan, instructions=instructions)
    return (await compact(stage.dependencies, task))[2]


async def prepare_one(stage: Stage) -> bool:
    """Prepare the session's next summary as a job does; return whether one was stored."""
    return (await prepare_next(stage.dependencies, await stage.reload())).outcome is CompactionOutcome.PREPARED


def asked(request: ModelRequest) -> str:
    """What a summariser was asked."""
    return str(request.prompt.messages[0].content)


def positions_read(requests: Sequence[ModelRequest]) -> list[int]:
    """The positions of all messages that summarisers were shown, in order, also those shown twice."""
    return [int(position) for request in requests for position in _TAG.findall(asked(request))]


def as_adoption(plan: ContextPlan) -> ContextPlan:
    """Return the plan with the decision to adopt what is prepared, whatever it decided."""
    return replace(plan, decision=replace(plan.decision, action=CompactionAction.ADOPT))


async def loaded(stage: Stage) -> Conversation:
    """Return the session's conversation as the next turn loads it."""
    return (await at_rest(stage.dependencies, await stage.reload()))[1]


_INSERT = """
insert into messages (id, session_id, position, role, content, author, source, token_count, counter)
select gen_random_uuid(), $1, m.position, m.role, m.content, m.author, 'api', 1000, 'chars'
from unnest($2::integer[], $3::text[], $4::text[], $5::text[]) as m (position, role, content, author)
"""
_SUMMARISE = """
update sessions s set message_count = m.position, conversation_summary = 'They talked about all kinds of things.',
    summary_tokens = 20, summary_version = 1, summary_through_position = m.position, summary_through_id = m.id
from messages m where s.id = $1 and m.session_id = s.id and m.position = $2
"""


async def fill_summarised(
    database_url: str,
    session_id: SessionId,
    rows: Sequence[tuple[int, str, str]],
    authors: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Store rows of position, role and text in an empty session, and let its summary cover them all.

    `authors` has the names of authors by position.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    await run_sql(database_url, _INSERT, session_id, *columns, [authors.get(position) for position, *_ in rows])
    await run_sql(database_url, _SUMMARISE, session_id, len(rows))
