"""The parts of a turn reach whatever records them, each below the part that it belongs to."""

import asyncio
from dataclasses import replace

from fakes.listed_spans import ListedSpan, ListedTracing, parts_below
from fakes.scripted_model import Call, Say
from fakes.stage import open_stage
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.domain.run import Run
from throughline.ports.tracing import NO_SPAN, SpanUnderWay, StepPart, create_untraced_task, traced


async def test_each_node_of_the_graph_and_what_it_calls_is_a_part(database: Database) -> None:
    stage = await open_stage(database)
    tracing = ListedTracing()
    stage.dependencies = replace(stage.dependencies, tracing=tracing)
    stage.model.script(Call((ToolCall("c1", "calculator", '{"expression": "1+1"}'),)), Say("2"))

    run = await stage.turn("add")

    (root,) = tracing.roots
    assert isinstance(root.part, Run)
    assert (root.part.id, root.ends) == (run.id, [None])
    nodes = ["process_message", "retrieve_context", "save_user_message", "llm_node", "tool_node", "llm_node"]
    assert parts_below(root) == nodes
    parts = {name: below for name, span in zip(nodes, _steps(root), strict=True) if (below := parts_below(span))}
    assert parts == {"llm_node": ["ModelCallPart"], "tool_node": ["ToolCallPart"]}


def _steps(root: ListedSpan) -> list[ListedSpan]:
    return [one for one in root.below if isinstance(one.part, StepPart)]


async def test_nothing_is_a_part_where_no_span_is_under_way() -> None:
    with traced(StepPart("alone")) as span:
        assert span is NO_SPAN
        assert traced(StepPart("below")) is NO_SPAN


async def test_an_untraced_task_belongs_to_no_span() -> None:
    root = ListedSpan(StepPart("root"))

    async def work() -> None:
        with traced(StepPart("work")):
            await asyncio.sleep(0)

    with SpanUnderWay(root):
        await create_untraced_task(work())
        await asyncio.create_task(work())

    assert parts_below(root) == ["work"]
