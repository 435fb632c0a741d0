"""One turn is one trace: its parts, what they say, and what they never say."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from fakes.compactions import fill, prepare_one
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Hang, Say, ScriptedModel, Step
from fakes.stage import AGENT, Stage, open_stage, with_context
from fakes.waiting import until_found
from throughline.db.database import Database
from throughline.domain.errors import ModelInvalidRequest, ModelUnavailable
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ModelRequest, Usage
from throughline.domain.run import RunStatus
from throughline.ports.tracing import NO_SPAN, StepPart
from throughline.tracing.otel_tracing import OtelTracing
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now
from throughline.turn.take_turn import take_turn

BY_TIME = ("INSERT run_events", "INSERT token_calibration", "wait for connection")
"""Names, or parts of them, of spans that depend on time: events stored under way, and what is written behind turns."""


@dataclass(frozen=True, slots=True)
class RecordedSpans:
    """What a tracing has recorded."""

    exporter: InMemorySpanExporter
    provider: TracerProvider

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, beginning: str) -> list[ReadableSpan]:
        """Return the spans whose names begin so, in the order of their begin."""
        return sorted((span for span in self.all if span.name.startswith(beginning)), key=_began)

    def lines(self) -> list[str]:
        """Return the names of all spans, each below its parent and set in by its depth, in the order of their begin."""
        roots = [span for span in self.all if span.parent is None]
        return [line for root in sorted(roots, key=_began) for line in self._lines(root, 0)]

    def _lines(self, span: ReadableSpan, depth: int) -> list[str]:
        if any(name in span.name for name in BY_TIME):
            return []
        context = span.get_span_context()
        assert context is not None
        below = [one for one in self.all if one.parent is not None and one.parent.span_id == context.span_id]
        lines = [line for one in sorted(below, key=_began) for line in self._lines(one, depth + 1)]
        return ["  " * depth + span.name, *lines]

    def whole_text(self) -> str:
        """Return everything that would leave the process, as one text."""
        return "\n".join(span.to_json() for span in self.all)


def record_spans(stage: Stage, *, with_texts: bool = False, sample_ratio: float = 1.0) -> RecordedSpans:
    """Have the turns of the stage traced."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = OtelTracing(provider, sample_ratio=sample_ratio, with_texts=with_texts)
    stage.dependencies = replace(stage.dependencies, tracing=tracing)
    return RecordedSpans(exporter, provider)


def _began(span: ReadableSpan) -> tuple[int, int]:
    return span.start_time or 0, span.end_time or 0


SECRET = "xylophone"
SUM = Call((ToolCall("c1", "calculator", '{"expression": "6*7"}'),), usage=Usage(900, 5))
SUMMARY = Say(f"## Intent\nThe user counts {SECRET}s [#1-#2].", usage=Usage(4_000, 40))


TREE = [
    "invoke_agent assistant",
    "  wait in queue",
    "  process_message",
    "    SELECT token_calibration",
    "  retrieve_context",
    "    SELECT sessions",
    "    compaction",
    "      SELECT summary_versions",
    "      SELECT summaries",
    "      SELECT sessions",
    "      chat small",
    "      BEGIN",
    "      SELECT runs",
    "      SELECT sessions",
    "      INSERT summaries",
    "      COMMIT",
    "      INSERT model_calls",
    "      BEGIN",
    "      SELECT runs",
    "      SELECT sessions",
    "      SELECT summaries",
    "      DELETE summary_versions",
    "      UPDATE summary_versions",
    "      INSERT summary_versions",
    "      UPDATE sessions, INSERT jobs",
    "      COMMIT",
    "    UPDATE sessions",
    "    SELECT messages",
    "    SELECT messages",
    "  save_user_message",
    "    UPDATE sessions, INSERT messages, INSERT message_reasoning",
    "  llm_node",
    "    chat small",
    "    UPDATE sessions, INSERT messages, INSERT message_reasoning",
    "  tool_node",
    "    execute_tool calculator",
    "    UPDATE sessions, INSERT messages, INSERT message_reasoning",
    "  llm_node",
    "    chat small",
    "  SELECT summary_versions",
    "  UPDATE runs, UPDATE sessions, INSERT messages",
]


async def open_long(database: Database, *, turns: int = 30, prompt: str = AGENT.system_prompt) -> Stage:
    """Open a stage whose next turn writes a summary, calls a tool and answers."""
    agent = replace(with_context(window=8192, min_recent_messages=2), system_prompt=prompt)
    stage = await open_stage(database, agent=agent, model=ScriptedModel())
    stage.model.name = "openai:small"
    await fill(stage, turns, words=60)
    said: list[Step] = [Say(f"a {SECRET} it is", usage=Usage(1_000, 7, cached_tokens=600)), SUM]

    def answer(request: ModelRequest) -> Step:
        return said.pop() if request.tools else SUMMARY

    stage.model.by_request = answer
    return stage


async def recorded_turn(database: Database) -> RecordedSpans:
    stage = await open_long(database)
    spans = record_spans(stage)
    assert (await stage.turn("and the harbour?")).status is RunStatus.SUCCEEDED
    return spans


def one(spans: RecordedSpans, name: str) -> ReadableSpan:
    (found,) = spans.named(name)
    return found


@pytest.mark.calm("it lists all statements")
async def test_a_turn_with_a_tool_call_and_a_compaction_is_one_tree(database: Database) -> None:
    spans = await recorded_turn(database)

    assert spans.lines() == TREE


async def test_the_root_says_which_turn_it_was_and_what_it_used(database: Database) -> None:
    stage = await open_long(database)
    spans = record_spans(stage)

    run = await stage.turn("and now?")

    root = one(spans, "invoke_agent")
    assert root.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "assistant",
        "gen_ai.conversation.id": str(stage.session.id),
        "throughline.run.id": str(run.id),
        "throughline.run.attempt": 1,
        "throughline.source": "api",
        "throughline.run.status": "succeeded",
        "gen_ai.usage.input_tokens": 1_900,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 600,
    }
    assert (root.kind, root.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)


async def test_model_calls_say_what_for_and_how_many_tokens(database: Database) -> None:
    spans = await recorded_turn(database)

    summary, step, answer = spans.named("chat")
    assert summary.attributes is not None
    assert step.attributes is not None
    assert answer.attributes is not None
    assert summary.attributes["throughline.call.purpose"] == "summary"
    assert summary.attributes["gen_ai.usage.input_tokens"] == 4_000
    assert step.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert dict(answer.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": one(spans, "invoke_agent").attributes["gen_ai.conversation.id"],  # type: ignore[index]  # it has attributes
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.request.max_tokens": 512,
        "gen_ai.request.stream": True,
        "throughline.call.purpose": "answer",
        "gen_ai.usage.input_tokens": 1_000,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 600,
        "gen_ai.response.finish_reasons": ("stop",),
    }
    assert answer.kind is SpanKind.CLIENT


async def test_tools_and_compactions_say_what_became_of_them(database: Database) -> None:
    spans = await recorded_turn(database)

    tool, compaction = one(spans, "execute_tool").attributes, one(spans, "compaction").attributes
    assert tool is not None
    assert compaction is not None
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.id"]) == ("calculator", "c1")
    assert compaction["throughline.compaction.outcome"] == "adopted"
    assert compaction["throughline.compaction.action"] == "write_now"
    assert compaction["throughline.compaction.tokens_before"] > compaction["throughline.compaction.tokens_after"]  # type: ignore[operator]  # numbers


async def test_statements_have_a_name_and_neither_text_nor_parameters(database: Database) -> None:
    spans = await recorded_turn(database)

    statements = [span for span in spans.all if span.attributes and "db.system.name" in span.attributes]
    assert len(statements) > 20
    for span in statements:
        assert span.attributes is not None
        assert set(span.attributes) == {"db.system.name", "db.operation.name", "db.query.summary"}
        assert span.kind is SpanKind.CLIENT


async def test_no_text_of_users_models_or_tools_is_recorded_by_default(database: Database) -> None:
    stage = await open_long(database, prompt=f"You like the {SECRET}.")
    spans = record_spans(stage)

    assert (await stage.turn(f"Which {SECRET}?")).status is RunStatus.SUCCEEDED

    assert SECRET in str(await stage.messages())
    assert SECRET not in spans.whole_text()
    assert "6*7" not in spans.whole_text()


async def test_texts_are_recorded_where_the_operator_asks_for_them(database: Database) -> None:
    stage = await open_long(database, prompt=f"You like the {SECRET}.")
    spans = record_spans(stage, with_texts=True)

    await stage.turn(f"Which {SECRET}?")

    root, tool, answer = one(spans, "invoke_agent"), one(spans, "execute_tool"), spans.named("chat")[-1]
    assert root.attributes is not None
    assert tool.attributes is not None
    assert answer.attributes is not None
    assert SECRET in str(root.attributes["gen_ai.input.messages"])
    assert SECRET in str(root.attributes["gen_ai.output.messages"])
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"expression": "6*7"}'
    assert tool.attributes["gen_ai.tool.call.result"] == "42"
    assert SECRET in str(answer.attributes["gen_ai.system_instructions"])
    assert '"type": "tool_call_response"' in str(answer.attributes["gen_ai.input.messages"])
    assert SECRET in str(answer.attributes["gen_ai.output.messages"])


async def test_each_try_of_a_model_is_a_span_with_its_error(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Fail(ModelUnavailable(f"no {SECRET}", delay_seconds=1)), Say("here"))
    spans = record_spans(stage)

    await stage.turn("hi")

    failed, answered = spans.named("chat")
    assert failed.attributes is not None
    assert (failed.attributes["error.type"], failed.status.status_code) == ("model_unavailable", StatusCode.ERROR)
    assert answered.status.status_code is StatusCode.UNSET
    assert one(spans, "invoke_agent").status.status_code is StatusCode.UNSET
    assert SECRET not in spans.whole_text()


async def test_a_failed_turn_says_its_error(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Fail(ModelInvalidRequest(f"no {SECRET}")))
    spans = record_spans(stage)

    await stage.turn("hi")

    root = one(spans, "invoke_agent")
    assert root.attributes is not None
    assert root.status.status_code is StatusCode.ERROR
    assert root.attributes["error.type"] == "model_invalid_request"
    assert root.attributes["throughline.run.status"] == "failed"
    assert SECRET not in spans.whole_text()


async def test_a_tool_that_fails_marks_its_span(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ToolCall("c1", "calculator", '{"expression": "1/0"}'),)), Say("no"))
    spans = record_spans(stage)

    await stage.turn("divide")

    tool = one(spans, "execute_tool")
    assert tool.attributes is not None
    assert (tool.attributes["error.type"], tool.status.status_code) == ("tool_error", StatusCode.ERROR)


async def test_a_statement_that_fails_says_postgresqls_state(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("here"))
    spans = record_spans(stage)
    await stage.submit("hi")
    claimed = await stage.claim()
    await run_sql(database_url, "alter table token_calibration rename to gone")

    await take_turn(stage.turn_start(claimed))

    failed = spans.named("SELECT token_calibration")[0]
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "42P01"


async def test_a_cancelled_turn_ends_its_trace(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Hang(f"a {SECRET}"))
    spans = record_spans(stage)
    run = await stage.submit("hi")
    start = stage.turn_start(await stage.claim())
    taking = asyncio.create_task(take_turn(start))
    await until_found(lambda: asyncio.sleep(0, stage.model.requests))

    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    start.heartbeat.renew_now()
    await taking

    root, chat = one(spans, "invoke_agent"), one(spans, "chat")
    assert root.attributes is not None
    assert chat.attributes is not None
    assert root.attributes["throughline.run.status"] == "cancelled"
    assert chat.attributes["error.type"] == "CancelledError"
    assert SECRET not in spans.whole_text()


async def test_the_root_begins_with_the_wait_in_the_queue_of_the_first_attempt(database: Database) -> None:
    stage = await open_stage(database)
    spans = record_spans(stage)
    await stage.submit("hi")
    await asyncio.sleep(0.05)
    run = (await stage.claim()).run

    stage.dependencies.tracing.begin_turn(run).end(None)
    stage.dependencies.tracing.begin_turn(replace(run, attempt=2)).end(None)

    wait, (first, second) = one(spans, "wait in queue"), spans.named("invoke_agent")
    assert wait.start_time == first.start_time
    assert (wait.end_time or 0) - (wait.start_time or 0) >= 50_000_000
    assert (second.end_time or 0) - (second.start_time or 0) < 50_000_000


async def test_turns_at_the_same_time_do_not_mix(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.by_request = lambda _request: Say("one two three")
    spans = record_spans(stage)
    for owner in ("anna", "berta", "carla"):
        await stage.submit_elsewhere("hi", owner=owner)
    claimed = [await stage.claim() for _ in range(3)]

    await asyncio.gather(*(take_turn(stage.turn_start(run)) for run in claimed))

    traces = {root.context.trace_id: root for root in spans.named("invoke_agent")}
    assert len(traces) == len(spans.named("chat")) == 3
    for chat in spans.named("chat"):
        root = traces[chat.context.trace_id]
        assert chat.attributes is not None
        assert root.attributes is not None
        assert chat.attributes["gen_ai.conversation.id"] == root.attributes["gen_ai.conversation.id"]


async def test_nothing_is_added_to_a_trace_after_its_end(database: Database) -> None:
    stage = await open_stage(database)
    spans = record_spans(stage)
    await stage.submit("hi")
    root = stage.dependencies.tracing.begin_turn((await stage.claim()).run)

    root.end(None)

    assert root.begin(StepPart("late")) is NO_SPAN
    assert spans.named("late") == []


async def test_the_line_about_a_turn_has_the_id_of_its_trace(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("one"), Say("two"), Say("three"))
    with capture_logs() as logs:
        await stage.turn("untraced")
        spans = record_spans(stage)
        await stage.turn("traced")
        record_spans(stage, sample_ratio=0.0)
        await stage.turn("left out")

    lines = [line for line in logs if line["event"] == "turn finished"]
    assert [line.get("trace_id") for line in lines] == [
        None,
        f"{one(spans, 'invoke_agent').context.trace_id:032x}",
        None,
    ]


@pytest.mark.parametrize("name", ["prepare summary", "summarize on demand"])
async def test_a_summary_outside_turns_is_a_trace_of_its_own(database: Database, name: str) -> None:
    stage = await open_long(database)
    spans = record_spans(stage)

    if name == "prepare summary":
        assert await prepare_one(stage)
    else:
        await summarize_now(stage.dependencies, stage.session, SummaryRequest())

    root, chat = one(spans, name), spans.named("chat")[0]
    assert root.parent is None
    assert root.attributes is not None
    assert root.attributes["gen_ai.conversation.id"] == str(stage.session.id)
    assert chat.context.trace_id == root.context.trace_id
    assert SECRET not in spans.whole_text()
