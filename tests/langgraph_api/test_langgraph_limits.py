"""How much one answer of LangGraph's interface has."""

from typing import Any

import pytest

from fakes.langgraph_stage import LangGraphStage, said
from fakes.scripted_model import Say
from throughline.langgraph_api import thread_state


async def test_a_history_has_fewer_states_if_their_messages_are_long(
    stage: LangGraphStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_state, "MAX_HISTORY_CHARACTERS", 600)
    stage.model.script(*(Say(f"{number}" * 100) for number in range(3)))
    thread = (await stage.client.threads.create())["thread_id"]
    for number in range(3):
        await stage.wait(thread, said(f"{number}"))

    states: Any = await stage.client.threads.get_history(thread)
    earlier: Any = await stage.client.threads.get_history(thread, before=states[-1]["checkpoint"])

    assert [len(state["values"]["messages"]) for state in (*states, *earlier)] == [6, 4, 2]
    assert len(states) == 2
