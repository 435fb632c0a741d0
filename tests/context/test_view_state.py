"""The view state: what is stored of it, and what an older one still says."""

from dataclasses import replace

import pytest

from context.strategies import Said, conversation_input
from throughline.context.fit_prompt import fit_prompt
from throughline.context.view.view_state import ViewState, range_at, truncated, view_state_from, view_state_json
from throughline.domain.message import Role, ToolCall, text_of


def test_a_further_truncation_leaves_what_is_shorter_and_binds_nothing_later() -> None:
    state = truncated(truncated(ViewState(), 10, 300), 20, 4000)

    assert [state.truncated_to(position) for position in (1, 10, 11, 20, 21)] == [300, 300, 4000, 4000, None]
    assert truncated(state, 30, 200).truncations == ((30, 200),)
    assert truncated(state, 15, 500).truncations == ((10, 300), (15, 500), (20, 4000))


def test_a_position_is_found_in_the_range_that_holds_it() -> None:
    ranges = ((3, 5), (8, 8))

    assert [range_at(ranges, position) for position in (2, 3, 5, 6, 8, 9)] == [None, (3, 5), (3, 5), None, (8, 8), None]


def test_the_name_that_older_versions_gave_the_last_stage_is_read() -> None:
    assert view_state_from({"rung": "pruned"}) == ViewState(stage="pruned")


@pytest.mark.parametrize("tokens", [0, 60])
def test_the_one_truncation_that_older_versions_wrote_is_read(tokens: int) -> None:
    state = view_state_from({"truncated_through_position": 4, "truncated_to_tokens": tokens, "stage": "pruned"})

    assert state == ViewState(stage="pruned", truncations=((4, tokens),))
    assert view_state_from(view_state_json(state)) == state


def test_a_new_report_gets_the_room_there_is_however_short_older_messages_were_cut() -> None:
    before = [Said(Role.USER, "write it"), Said(Role.ASSISTANT, "line " * 600)]
    call = ToolCall("c", "read", "{}")
    asked = [Said(Role.USER, "read it"), Said(Role.ASSISTANT, "", (call,))]
    own = [*asked, Said(Role.TOOL, "report " * 4000, tool_call_id="c")]
    old = view_state_from({"truncated_through_position": 2, "truncated_to_tokens": 60})

    fitted = fit_prompt(replace(conversation_input(before, own, None), view_state=old))

    assert fitted.notes == ("messages_truncated",)
    assert len(text_of(fitted.prompt.messages[-1].content)) > 15_000
    assert len(text_of(fitted.prompt.messages[1].content)) < 250
    assert fitted.view_state.truncations[0] == (2, 60)
