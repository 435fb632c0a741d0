"""The same conversation in two sessions of one owner: the second summary is copied from the first at no cost."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.compactions import SUMMARY, asked, compact_now, open_summarising, positions_read, store
from fakes.raw_sql import hold_rows, run_sql
from fakes.scripted_model import Say, ScriptedModel, ScriptedModels
from fakes.stage import LEARNED_KEY, Stage
from fakes.waiting import HANG_SECONDS
from throughline.agents.registry import AgentRegistry
from throughline.context.calibration import Calibration
from throughline.context.measure import count_message
from throughline.context.policy import SummaryKind, SummaryShape
from throughline.context.summaries.facts_choice_prompt import CHOICE_SYSTEM_PROMPT
from throughline.context.summaries.summary_prompt import MERGE_TASK
from throughline.db.database import Database
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.domain.prompt import ModelRequest
from throughline.domain.summary import FactKind, Segment, SummaryState, SummaryVersion
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import estimate_summary, summarize_now


async def import_texts(stage: Stage, texts: Sequence[str], *, owner: str = "anna") -> None:
    """Import questions and answers in turn; the stage's session is that one from then on."""
    messages = [
        NewMessage(Role.USER if number % 2 == 0 else Role.ASSISTANT, text, Source.API)
        for number, text in enumerate(texts)
    ]
    await import_messages(stage, messages, owner=owner)


async def import_messages(stage: Stage, messages: Sequence[NewMessage], *, owner: str = "anna") -> None:
    """Import the messages for a user of this name; the stage's owner and session are those from then on."""
    stage.owner_id = await stage.database.users.get_or_create(owner)
    counter = stage.dependencies.make_counter("chars")
    dated = [
        DatedMessage(replace(message, token_count=count_message(message, counter.count), counter=counter.name))
        for message in messages
    ]
    new = Imported(stage.owner_id, stage.session.agent, "", Source.API, {})
    stage.session = await stage.database.sessions.import_conversation(new, dated)


async def adopted(stage: Stage) -> tuple[SummaryVersion, tuple[Segment, ...]]:
    """Return the summary in use, with its segments."""
    found = await stage.database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert found is not None
    return found


COSTS = """
    select count(*), coalesce(sum(input_tokens + output_tokens), 0) from summaries where session_id = $1
"""
LEAF = "leaf words " * 20
TEXTS = tuple(f"{role} {number} " + "word " * 30 for number in range(7) for role in ("user", "assistant"))
SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]


async def summarised(stage: Stage) -> list[ModelRequest]:
    """Summarise the stage's session; return what the model was asked."""
    stage.model.requests.clear()
    assert (await compact_now(stage)).outcome == "adopted"
    return list(stage.model.requests)


def change_policy(stage: Stage, **changes: object) -> None:
    """Let the stage's agent summarise by another policy."""
    agent = stage.dependencies.agents.get(stage.session.agent)
    policy = replace(agent.context.summary, **changes)  # type: ignore[arg-type]  # fields by name
    changed = replace(agent, context=replace(agent.context, summary=policy))
    stage.dependencies = replace(stage.dependencies, agents=AgentRegistry([changed]))


async def open_with(database: Database, **summary: object) -> Stage:
    stage = await open_summarising(database, **{"chunk_messages": 4, **summary})  # type: ignore[arg-type]  # fields by name
    stage.model.by_request = lambda _: Say(SUMMARY)
    return stage


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_second_import_of_a_conversation_takes_no_call_and_no_tokens(
    database: Database, database_url: str, shape: SummaryShape
) -> None:
    stage = await open_with(database, shape=shape)
    stage.model.by_request = lambda _: Say(f"{SUMMARY}\nKEEP:\nvalue | count | user 0 word | #1")
    await import_texts(stage, TEXTS)
    paid = await summarised(stage)
    (first, _), counted = await adopted(stage), len(stage.metrics.of("summary_written"))

    await import_texts(stage, TEXTS)
    again = await summarised(stage)
    second, segments = await adopted(stage)

    assert (len(paid), len(again)) == (3, 0)
    assert len(stage.metrics.of("summary_written")) == counted
    assert await run_sql(database_url, COSTS, stage.session.id) == [(3, 0)]
    assert (second.text, second.kept_facts) == (first.text, first.kept_facts)
    assert FactKind.VALUE in [fact.kind for fact in second.kept_facts]
    own = {message.id for message in await stage.messages()}
    assert {segment.through_id for segment in segments} <= own


async def test_merged_segments_are_copied_too(database: Database, database_url: str) -> None:
    stage = await open_with(database, shape=SummaryShape.TIERED, chunk_messages=2, max_tokens=900)
    stage.model.by_request = lambda request: Say("merged words" if MERGE_TASK in asked(request) else LEAF)
    texts = [f"{number} " + "word " * 60 for number in range(24)]
    await import_texts(stage, texts)
    paid = await summarised(stage)

    await import_texts(stage, texts)
    again = await summarised(stage)

    assert (sum(MERGE_TASK in asked(request) for request in paid), len(again)) == (1, 0)
    assert [segment.level for segment in (await adopted(stage))[1]] == [0] * 8
    assert await run_sql(database_url, COSTS, stage.session.id) == [(len(paid), 0)]


async def test_a_copy_is_copied_again_when_the_first_session_is_gone(database: Database) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    first = stage.session
    await summarised(stage)
    await import_texts(stage, TEXTS)
    await summarised(stage)
    await database.sessions.delete(stage.owner_id, first.id)

    await import_texts(stage, TEXTS)

    assert await summarised(stage) == []


async def test_a_conversation_that_goes_on_otherwise_is_paid_for_from_there_on(database: Database) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    await summarised(stage)

    await import_texts(stage, (*TEXTS[:8], *(text.replace("word", "thing") for text in TEXTS[8:])))

    assert positions_read(await summarised(stage)) == [9, 10, 11, 12]


async def test_another_owner_pays(database: Database) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    paid = await summarised(stage)

    await import_texts(stage, TEXTS, owner="ben")

    assert positions_read(await summarised(stage)) == positions_read(paid)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_tokens": 300},
        {"style": "Write it as a list."},
        {"instructions": "Keep the names."},
        {"kind": SummaryKind.LLM},
        {"shape": SummaryShape.ROLLING},
    ],
)
async def test_what_is_asked_for_otherwise_is_paid_for(database: Database, changes: dict[str, object]) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    await summarised(stage)
    change_policy(stage, **changes)

    await import_texts(stage, TEXTS)

    assert len(await summarised(stage)) == 3


async def test_another_model_is_paid_for(database: Database) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    await summarised(stage)
    other = ScriptedModel()
    other.name = other.calibration_key = "other"
    other.by_request = lambda _: Say(SUMMARY)
    stage.dependencies, stage.model = replace(stage.dependencies, models=ScriptedModels(other)), other

    await import_texts(stage, TEXTS)

    assert len(await summarised(stage)) == 3


async def test_texts_that_differ_where_no_summariser_looks_are_not_the_same(database: Database) -> None:
    stage = await open_with(database)

    def run_of(hidden: str) -> list[NewMessage]:
        output = "line\n" * 400 + hidden + "line\n" * 400
        return [
            NewMessage(Role.USER, "Run it.", Source.API),
            NewMessage(Role.ASSISTANT, "", Source.API, tool_calls=(ToolCall("c1", "run", "{}"),)),
            NewMessage(Role.TOOL, output, Source.API, tool_call_id="c1", name="run"),
            *(NewMessage(Role.USER, text, Source.API) for text in TEXTS[:3]),
        ]

    await import_messages(stage, run_of("port 80\n"))
    paid = await summarised(stage)
    await import_messages(stage, run_of("port 81\n"))
    again = await summarised(stage)

    assert paid
    assert [asked(request) for request in again] == [asked(request) for request in paid]


async def test_what_was_redacted_there_is_paid_for_here(database: Database) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    await summarised(stage)
    sixth = (await stage.messages())[5]
    await database.messages.redact(Redaction(stage.owner_id, stage.session.id, sixth.id))

    await import_texts(stage, TEXTS)

    assert positions_read(await summarised(stage)) == [5, 6, 7, 8]


async def test_what_was_redacted_here_is_not_copied_back(database: Database) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    await summarised(stage)
    await import_texts(stage, TEXTS)
    sixth = (await stage.messages())[5]
    await database.messages.redact(Redaction(stage.owner_id, stage.session.id, sixth.id))

    read = positions_read(await summarised(stage))

    assert read == [5, 6, 7, 8]


@pytest.mark.parametrize("table", ["summaries", "sessions"])
async def test_a_session_that_is_being_deleted_is_not_waited_for(
    database: Database, database_url: str, table: str
) -> None:
    stage = await open_with(database)
    await import_texts(stage, TEXTS)
    await summarised(stage)
    column = "session_id" if table == "summaries" else "id"
    locked = f"select 1 from {table} where {column} = '{stage.session.id}' for update"
    await import_texts(stage, TEXTS)

    async with hold_rows(database_url, locked), asyncio.timeout(HANG_SECONDS):
        requests = await summarised(stage)

    assert len(requests) == (3 if table == "summaries" else 0)
    assert (await stage.reload()).summary_through_position == 12


async def test_a_session_that_was_held_in_turns_pays_once_for_both(database: Database) -> None:
    stage = await open_with(database)
    roles = (Role.USER, Role.ASSISTANT)
    await store(stage, *((roles[number % 2], text) for number, text in enumerate(TEXTS)))
    await summarised(stage)

    await import_texts(stage, TEXTS)

    assert await summarised(stage) == []


CHOICES_COSTS = "select coalesce(sum(input_tokens + output_tokens), 0) from summaries where session_id = $1"
NO_REQUEST = SummaryRequest()
DECISIONS = tuple(
    text for number in range(64) for text in (f"We take part {number} as told in the meeting of that day.", "Good.")
)


def with_facts(request: ModelRequest) -> Say:
    """Name the user's sentences, or choose as many on a list as are asked for, the first ones."""
    if most := re.search(r"Return at most (\d+) numbers", asked(request)):
        return Say(", ".join(str(number + 1) for number in range(int(most[1]))))
    said = re.findall(r"^\[#(\d+) user\] (.+)$", asked(request), re.MULTILINE)
    lines = (f"decision | item {place} | {text} | #{place}" for place, text in said)
    return Say("\n".join((SUMMARY, "KEEP:", *lines)))


async def open_stage_with(database: Database, **summary: object) -> Stage:
    stage = await open_summarising(database, **{"chunk_messages": 20, **summary})  # type: ignore[arg-type]  # fields by name
    stage.model.by_request = with_facts
    return stage


def choices(requests: Sequence[ModelRequest]) -> list[str]:
    return [asked(request) for request in requests if request.prompt.system == CHOICE_SYSTEM_PROMPT]


async def on_demand(stage: Stage, request: SummaryRequest = NO_REQUEST) -> list[ModelRequest]:
    """Summarise as the route does; return what the model was asked."""
    stage.model.requests.clear()
    done = await summarize_now(stage.dependencies, await stage.reload(), request)
    assert done.outcome in {"adopted", "skipped"}  # skipped: a request changed nothing
    assert done.spent.calls == len(stage.model.requests)
    return list(stage.model.requests)


@pytest.mark.parametrize("shape", [SummaryShape.ROLLING, SummaryShape.TIERED])
async def test_the_choice_of_facts_is_copied_too(database: Database, database_url: str, shape: SummaryShape) -> None:
    stage = await open_stage_with(database, shape=shape)
    await import_texts(stage, DECISIONS)
    paid = await on_demand(stage)
    (first, _), counted = await adopted(stage), len(stage.metrics.of("summary_written"))

    await import_texts(stage, DECISIONS)
    again = await on_demand(stage)
    second, _ = await adopted(stage)

    assert (len(choices(paid)), again) == (1, [])
    assert len(stage.metrics.of("summary_written")) == counted
    assert await run_sql(database_url, CHOICES_COSTS, stage.session.id) == [(0,)]
    assert (second.text, second.kept_facts) == (first.text, first.kept_facts)
    assert {fact.passed_over for fact in second.kept_facts} == {0, 1}

    await import_texts(stage, DECISIONS, owner="ben")
    assert [asked(request) for request in await on_demand(stage)] == [asked(request) for request in paid]


@pytest.mark.parametrize("shape", [SummaryShape.ROLLING, SummaryShape.TIERED])
async def test_the_estimated_cost_includes_the_choice_of_facts(database: Database, shape: SummaryShape) -> None:
    stage = await open_stage_with(database, shape=shape, chunk_messages=200)
    await import_texts(stage, DECISIONS)
    await on_demand(stage)
    request = SummaryRequest("Keep the names.")
    stage.model.by_request = lambda asking: Say(with_facts(asking).text.replace("| item", "| name"))

    cost = await estimate_summary(stage.dependencies, await stage.reload(), request)
    paid = await on_demand(stage, request)

    assert len(choices(paid)) == 1
    assert cost.calls == len(paid) == 2
    read = sum(map(len, map(asked, paid))) / 4
    assert 0.8 * read < cost.input_tokens < 1.5 * read


async def test_a_redaction_takes_the_choice_away(database: Database) -> None:
    stage = await open_stage_with(database)
    await import_texts(stage, DECISIONS)
    await on_demand(stage)
    await database.messages.redact(Redaction(stage.owner_id, stage.session.id, (await stage.messages())[2].id))

    await import_texts(stage, DECISIONS)

    assert len(choices(await on_demand(stage))) == 1


async def test_a_request_is_paid_for_once(database: Database) -> None:
    stage = await open_stage_with(database, chunk_messages=4)
    request, calls = SummaryRequest("Keep the names."), []
    for _ in range(2):
        await import_texts(stage, TEXTS)
        calls += [len(await on_demand(stage)), len(await on_demand(stage, request))]

    assert calls == [3, 3, 0, 0]
    assert len(await on_demand(stage, SummaryRequest("Keep the places."))) == 3


async def test_what_a_session_wants_kept_is_paid_for(database: Database) -> None:
    stage = await open_stage_with(database, chunk_messages=4)
    await import_texts(stage, TEXTS)
    await on_demand(stage)

    await import_texts(stage, TEXTS)
    change = SessionChange(summary_instructions="Keep the names.")
    await database.sessions.update(stage.owner_id, stage.session.id, change)

    assert len(await on_demand(stage)) == 3


@pytest.mark.parametrize(("ratio", "is_copied"), [(1.1, True), (1.3, False)])
async def test_a_little_learned_of_a_model_ends_no_copies(database: Database, ratio: float, *, is_copied: bool) -> None:
    stage = await open_stage_with(database)
    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(1.05, 20))
    await import_texts(stage, DECISIONS)
    await on_demand(stage)

    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(ratio, 20))
    await import_texts(stage, DECISIONS)

    assert (await on_demand(stage) == []) is is_copied
