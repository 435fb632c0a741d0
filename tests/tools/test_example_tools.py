"""The tools in docs/examples: what an author of tools is shown must run as it stands."""

from pathlib import Path
from uuid import UUID

import pytest

from fakes.tool_box import make_tool_box
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.tools.toolbox import ToolBox

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NIL = UUID(int=0)
CONTEXT = ToolContext(SessionId(NIL), UserId(NIL), RunId(NIL), idempotency_key="run:call")


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> ToolBox:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    agent = load_agents([EXAMPLES], AgentDefaults(usage_threshold=0.8, summary_model="")).get("tickets")
    box = make_tool_box()
    box.specs(agent.tools)
    return box


async def outcome(box: ToolBox, name: str, arguments: str) -> ToolOutcome:
    return await box.run(ToolCall("call", name, arguments), CONTEXT)


async def test_what_a_tool_returns_or_refuses_is_what_the_model_reads(box: ToolBox) -> None:
    assert (await outcome(box, "read_ticket", '{"number": "T-1"}')).text == "The export hangs at 99 %."
    refused = await outcome(box, "read_ticket", '{"number": "T-9"}')
    assert refused.is_error
    assert "Open are: T-1, T-2." in refused.text


async def test_a_tool_that_must_not_act_twice_says_so_and_has_a_key_to_tell_calls_apart(box: ToolBox) -> None:
    assert not box.is_repeatable("comment")
    assert box.is_repeatable("read_ticket")
    assert '"key":"run:call"' in (await outcome(box, "comment", '{"number": "T-1", "text": "Seen."}')).text
