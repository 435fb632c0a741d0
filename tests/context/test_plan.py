"""Planning: when a conversation is compacted, where it is cut, and that compacting converges."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.strategies import Said, conversation_input, inputs, stored
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import background_trigger
from throughline.context.plan_context import ContextPlan, backlog, plan_context
from throughline.context.policy import Adopt, ContextPolicy, Strategy, SummaryPolicy
from throughline.context.view.context_input import ContextInput
from throughline.domain.message import Message, Role, ToolCall

CAUSES = st.sampled_from((None, CompactionTrigger.MANUAL, CompactionTrigger.OVERFLOW))


def turns(number: int, words: int = 60) -> list[Said]:
    return [Said(role, "word " * words) for _ in range(number) for role in (Role.USER, Role.ASSISTANT)]


def running_turn(steps: int, words: int = 60) -> list[Said]:
    said = [Said(Role.USER, "do it all")]
    for number in range(steps):
        call = ToolCall(f"c{number}", "search", "{}")
        said += [Said(Role.ASSISTANT, "", (call,)), Said(Role.TOOL, "word " * words, tool_call_id=call.id)]
    return said


def adopt(context_input: ContextInput, plan: ContextPlan, summary: str) -> ContextInput:
    """What the next plan is given once the summary is stored; the rows still hold what lies behind the cursor."""
    assert plan.decision.through_position is not None
    return replace(
        context_input,
        view_state=plan.view_state,
        summary=summary,
        summary_tokens=context_input.count(summary),
        summary_through_position=plan.decision.through_position,
    )


@pytest.mark.slow
@given(inputs(), CAUSES)
def test_a_segment_follows_the_cursor_ends_between_groups_and_leaves_recent_messages(
    context_input: ContextInput, forced: CompactionTrigger | None
) -> None:
    plan = plan_context(context_input, forced=forced)

    chosen = [message.position for message in plan.decision.to_summarise]
    first = context_input.summary_through_position + 1
    assert chosen == list(range(first, first + len(chosen)))
    if chosen:
        assert plan.decision.through_position == chosen[-1]
        assert not_torn(context_input.rows, chosen[-1])
        kept = len(context_input.rows) - len(chosen) + (context_input.user is not None)
        assert kept >= max(context_input.policy.min_recent_messages, 1)


def not_torn(rows: tuple[Message, ...], through: int) -> bool:
    """No result behind the cut answers the newest call with its id, where that call lies before it unanswered."""
    waiting: dict[str, list[int]] = {}
    for row in rows:
        if row.role is Role.ASSISTANT and row.tool_calls:
            waiting |= {call.id: [] for call in row.tool_calls}
            for call in row.tool_calls:
                waiting[call.id].append(row.position)
        if row.role is Role.TOOL and waiting.get(row.tool_call_id or ""):
            asked_at = waiting[row.tool_call_id or ""].pop()
            if asked_at <= through < row.position:
                return False
    return True


@pytest.mark.slow
@given(inputs())
def test_a_compaction_is_not_followed_by_another_for_the_same_messages(context_input: ContextInput) -> None:
    context_input = replace(context_input, policy=replace(context_input.policy, adopt=Adopt.AT_THRESHOLD))
    plan = plan_context(context_input)
    if not plan.decision.to_summarise:
        return

    after = plan_context(adopt(context_input, plan, "short"))

    assert after.tokens < plan.tokens
    assert (
        after.tokens <= context_input.budget.target_tokens
        or after.decision.trigger is None
        or len(after.decision.to_summarise) > 0
    )
    assert len(rounds_until_quiet(context_input)) <= 3


def rounds_until_quiet(context_input: ContextInput) -> list[int]:
    done = []
    plan = plan_context(context_input)
    while plan.decision.to_summarise:
        done.append(len(plan.decision.to_summarise))
        context_input = adopt(context_input, plan, "short")
        plan = plan_context(context_input)
    return done


def test_a_long_conversation_is_compacted_once_for_each_share_of_the_window_it_grows() -> None:
    said: list[Said] = []
    cursor, compactions, summary = 0, 0, ""
    for _ in range(300):
        said += turns(1, words=80)
        context_input = conversation_input(said[cursor:], summary=summary, cursor=cursor)
        plan = plan_context(context_input)
        assert plan.tokens <= context_input.budget.budget_tokens
        if plan.decision.to_summarise:
            compactions, summary, cursor = compactions + 1, "fact " * 1000, plan.decision.to_summarise[-1].position

    grown = 300 * 2 * 105
    assert 10 < compactions <= grown / (0.2 * 8192)


def test_nothing_happens_below_the_threshold() -> None:
    plan = plan_context(conversation_input(turns(5)))

    assert plan.decision.trigger is None
    assert plan.decision.to_summarise == ()


def test_above_the_threshold_the_oldest_turns_go_until_the_target_is_reached() -> None:
    context_input = conversation_input(turns(50))

    plan = plan_context(context_input)
    after = plan_context(adopt(context_input, plan, "fact " * 1150))

    assert plan.decision.trigger is CompactionTrigger.THRESHOLD
    assert plan.tokens > context_input.budget.threshold_tokens
    assert plan.decision.to_summarise[0].position == 1
    assert plan.decision.to_summarise[-1].role is Role.ASSISTANT
    assert 0.8 * context_input.budget.target_tokens < after.tokens <= context_input.budget.target_tokens


def test_the_factor_counts() -> None:
    context_input = conversation_input(turns(30))

    assert plan_context(context_input).decision.trigger is None
    assert plan_context(replace(context_input, factor=2.0)).decision.trigger is CompactionTrigger.THRESHOLD


@pytest.mark.parametrize(
    ("adopting", "cause", "prepare"),
    [(Adopt.IMMEDIATELY, CompactionTrigger.MESSAGES, None), (Adopt.AT_THRESHOLD, None, "messages")],
)
def test_n_messages_compact_at_once_or_prepare(
    adopting: Adopt, cause: CompactionTrigger | None, prepare: str | None
) -> None:
    policy = ContextPolicy(max_messages_before_summary=30, adopt=adopting)

    plan = plan_context(conversation_input(turns(15, words=2), policy=policy))

    assert plan.decision.trigger is cause
    assert background_trigger(plan.view) == prepare
    if cause:
        assert [row.position for row in plan.decision.to_summarise] == list(range(1, 25))  # 6 stored + the pending one


def test_k_tokens_compact_at_once() -> None:
    policy = ContextPolicy(max_tokens_before_summary=2000, adopt=Adopt.IMMEDIATELY)

    plan = plan_context(conversation_input(turns(14, words=100), policy=policy, window=128_000))

    assert plan.decision.trigger is CompactionTrigger.TOKENS


@pytest.mark.parametrize("policy", [ContextPolicy(auto_summarize=False), ContextPolicy(strategy=Strategy.TRUNCATION)])
def test_without_automatic_summaries_only_a_wish_compacts(policy: ContextPolicy) -> None:
    context_input = conversation_input(turns(100), policy=policy)

    assert plan_context(context_input).decision.trigger is None
    assert background_trigger(plan_context(context_input).view) is None
    assert plan_context(context_input, forced=CompactionTrigger.MANUAL).decision.to_summarise


def test_a_wish_summarises_all_but_the_recent_messages() -> None:
    plan = plan_context(conversation_input(turns(10, words=2), user=None), forced=CompactionTrigger.MANUAL)

    assert plan.decision.through_position == 14


def test_a_wish_with_nothing_to_summarise_is_no_compaction() -> None:
    plan = plan_context(conversation_input(turns(2), user=None), forced=CompactionTrigger.MANUAL)

    assert plan.decision.trigger is None


def test_an_overflow_cuts_harder_than_the_threshold() -> None:
    context_input = conversation_input(turns(50))

    assert len(plan_context(context_input, forced=CompactionTrigger.OVERFLOW).decision.to_summarise) > len(
        plan_context(context_input).decision.to_summarise
    )


def test_a_giant_turn_is_cut_between_complete_steps_and_keeps_its_user_message() -> None:
    context_input = conversation_input(own=running_turn(150), user=None)

    plan = plan_context(context_input)
    after = adopt(context_input, plan, "what was found")

    assert plan.decision.trigger is CompactionTrigger.THRESHOLD
    assert plan.decision.to_summarise[-1].role is Role.TOOL
    assert after.current_behind_cursor == context_input.own[0]
    assert plan_context(after).tokens <= context_input.budget.target_tokens


def test_an_unanswered_call_of_the_running_turn_is_never_behind_the_cut() -> None:
    own = [*running_turn(20), Said(Role.ASSISTANT, "", (ToolCall("open", "search", "{}"),)), *running_turn(150)[1:]]

    policy = ContextPolicy(summary=SummaryPolicy(max_tokens=200))
    plan = plan_context(conversation_input(own=own, user=None, policy=policy))

    assert plan.decision.through_position is not None
    assert plan.decision.through_position <= 41


def test_a_gap_behind_the_cursor_is_loaded_first_and_never_skipped() -> None:
    context_input = conversation_input(turns(50), cursor=20)

    plan = plan_context(replace(context_input, summary_through_position=4))

    assert plan.decision.must_load_first
    assert plan.decision.to_summarise == ()


@pytest.mark.parametrize("forced", [None, CompactionTrigger.MANUAL, CompactionTrigger.OVERFLOW])
def test_what_was_not_loaded_is_summarised_even_where_all_loaded_messages_must_stay(
    forced: CompactionTrigger | None,
) -> None:
    context_input = conversation_input(turns(2, words=3000), cursor=40)
    behind = replace(context_input, summary_through_position=4)

    plan = plan_context(behind, forced=forced)

    assert plan_context(context_input).decision.trigger is None
    assert plan.decision.trigger is (forced or CompactionTrigger.THRESHOLD)
    assert plan.decision.must_load_first
    assert plan.decision.through_position == 40


def test_what_was_not_loaded_is_summarised_even_where_the_loaded_messages_fit() -> None:
    context_input = replace(conversation_input(turns(2), cursor=40), summary_through_position=4)

    assert plan_context(context_input).decision.through_position == 40
    assert plan_context(replace(context_input, policy=ContextPolicy(auto_summarize=False))).decision.trigger is None


def test_results_of_a_call_that_was_not_loaded_go_with_it() -> None:
    said = [Said(Role.TOOL, "found", tool_call_id="a"), Said(Role.TOOL, "found", tool_call_id="b"), *turns(2)]
    context_input = replace(conversation_input(said, cursor=40), summary_through_position=4)

    assert plan_context(context_input).decision.through_position == 42


def test_a_page_of_the_backlog_ends_between_groups_and_before_the_plans_cut() -> None:
    page = stored([*turns(3), *running_turn(1)[:2]], len)

    assert [row.position for row in backlog(page)] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.position for row in backlog(page, through_position=4)] == [1, 2, 3, 4]


def test_a_capped_tool_output_weighs_what_is_shown_of_it() -> None:
    own = running_turn(1, words=1_000_000)

    assert plan_context(conversation_input(own=own, user=None, window=128_000)).tokens < 13_000


def test_a_floor_too_high_is_said() -> None:
    assert plan_context(conversation_input(turns(3), system_prompt="rule " * 3000)).floor_too_high
    assert not plan_context(conversation_input(turns(3), window=128_000)).floor_too_high


def test_what_stays_shown_is_not_taken_for_freed() -> None:
    own = [Said(Role.USER, "x" * 5200), *running_turn(8, words=10)[1:]]

    context_input = conversation_input(own=own, user=None, window=2048)

    assert plan_context(context_input).tokens > context_input.budget.threshold_tokens
    assert plan_context(context_input).decision.trigger is None


def test_a_compaction_that_would_free_next_to_nothing_waits() -> None:
    context_input = conversation_input(turns(10, words=40), system_prompt="rule " * 3900)

    assert plan_context(context_input).tokens > context_input.budget.threshold_tokens
    assert plan_context(context_input).decision.trigger is None
    assert plan_context(context_input, forced=CompactionTrigger.MANUAL).decision.to_summarise
