"""Planning: when a conversation is compacted, where it is cut, and that compacting converges."""

from dataclasses import replace

import pytest

from context.prompt_judge import anthropic_faults, faults
from context.strategies import Said, conversation_input, stored
from throughline.context.compaction.compaction_cut import CutTask, choose_cut
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import background_trigger
from throughline.context.fit_prompt import MessageVariant, fit_prompt, fit_view
from throughline.context.plan_context import ContextPlan, backlog, plan_context
from throughline.context.policy import Adopt, ContextPolicy, ImportanceWeights, Strategy, SummaryPolicy
from throughline.context.preview import plan_next_call, preview_call
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Message, Role, ToolCall


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
def test_without_automatic_summaries_only_a_request_compacts(policy: ContextPolicy) -> None:
    context_input = conversation_input(turns(100), policy=policy)

    assert plan_context(context_input).decision.trigger is None
    assert background_trigger(plan_context(context_input).view) is None
    assert plan_context(context_input, forced=CompactionTrigger.MANUAL).decision.to_summarise


def test_a_request_summarises_all_but_the_recent_messages() -> None:
    plan = plan_context(conversation_input(turns(10, words=2), user=None), forced=CompactionTrigger.MANUAL)

    assert plan.decision.through_position == 14


def test_a_request_with_nothing_to_summarise_is_no_compaction() -> None:
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


MOST_CALLS = 8


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


def parallel(calls: int, words: int) -> list[Said]:
    """Return a turn with one step of so many calls, whose results were stored in another order."""
    asked = tuple(ToolCall(f"c{number}", "search", "{}") for number in range(calls))
    order = [*asked[1::2], *asked[0::2]]
    results = [Said(Role.TOOL, "word " * words, tool_call_id=call.id) for call in order]
    return [Said(Role.USER, "look everywhere"), Said(Role.ASSISTANT, "", asked), *results, Said(Role.ASSISTANT, "done")]


@pytest.mark.parametrize("calls", range(2, MOST_CALLS + 1))
def test_two_summaries_in_a_row_end_beside_a_step_wherever_they_would_cut_it(calls: int) -> None:
    group = parallel(calls, words=30)
    ends = set()
    for recent in range(1, calls + 8):
        context_input = conversation_input(
            [*turns(4), *group, *turns(2)], policy=ContextPolicy(min_recent_messages=recent, target=0.2)
        )
        for trigger in (CompactionTrigger.MANUAL, CompactionTrigger.OVERFLOW):
            plan = plan_context(context_input, forced=trigger)
            if plan.decision.through_position is None:
                continue
            ends.add(plan.decision.through_position)
            assert not_torn(context_input.rows, plan.decision.through_position)
            context_input = adopt(context_input, plan, "They looked.")
            prompt = fit_prompt(context_input).prompt
            assert faults(prompt) == []
            assert anthropic_faults(prompt) == []

    assert len(ends) > 1


@pytest.mark.parametrize("calls", range(2, MOST_CALLS + 1))
def test_a_prompt_that_has_room_for_part_of_a_step_shows_no_call_without_its_result(calls: int) -> None:
    context_input = conversation_input([*turns(2), *parallel(calls, words=120), *turns(12)])
    whole = fit_prompt(context_input).tokens
    shown = set()
    for window in range(600, 2 * whole, max(whole // 40, 1)):
        narrow = replace(
            context_input,
            budget=conversation_input(window=window, policy=context_input.policy).budget,
        )
        prompt = fit_prompt(narrow).prompt
        assert faults(prompt) == []
        assert anthropic_faults(prompt) == []
        shown.add(sum(len(message.tool_calls) for message in prompt.messages))

    assert shown >= {0, calls}


@pytest.mark.parametrize("given", range(MOST_CALLS))
def test_a_turn_that_was_cancelled_between_its_results_leaves_valid_prompts(given: int) -> None:
    group = parallel(MOST_CALLS, words=30)[: 2 + given]
    context_input = conversation_input([*turns(4), *group, *turns(2)])

    plan = plan_context(context_input, forced=CompactionTrigger.MANUAL)
    for one in (context_input, adopt(context_input, plan, "They looked.")):
        prompt = fit_prompt(one).prompt
        assert faults(prompt) == []
        assert anthropic_faults(prompt) == []


def test_a_summary_of_little_is_expected_to_be_as_large_as_an_adopted_one_may_be() -> None:
    said = [Said(role, "word") for _ in range(2) for role in (Role.USER, Role.ASSISTANT)]
    rows = stored(said, lambda _: 10)
    task = CutTask(
        rows=rows, row_tokens=[10] * len(rows), fixed_tokens=1000, summary_tokens=0, summary_limit=500, min_recent=2,
        kept_elsewhere=0, running=0, kept_rows=frozenset(), target_tokens=0, enough_tokens=0, may_cut_at_end=False,
    )  # fmt: skip

    cut = choose_cut(task)

    assert cut is not None
    assert (cut.index, cut.tokens_after) == (2, 1000 + 20 + SMALL_SUMMARY_TOKENS)


TURNS = 60


def stages(policy: ContextPolicy, window: int, tokens: int) -> list[int]:
    """Play turns of two messages of so many tokens each; return in which something was taken away."""
    said: list[Said] = []
    state, found = ViewState(), []
    for number in range(TURNS):
        words = "word " * (tokens * 4 // 5)
        context_input = replace(conversation_input(said, (), words, window=window, policy=policy), view_state=state)
        plan = plan_context(context_input)
        fitted = fit_view(plan.view)
        state = fitted.view_state
        found += [number] if plan.fired or fitted.notes else []
        said += [Said(Role.USER, words), Said(Role.ASSISTANT, words)]
    return found


@pytest.mark.parametrize("strategy", [Strategy.TRUNCATION, Strategy.IMPORTANCE])
@pytest.mark.parametrize(("window", "tokens"), [(8192, 270), (16_384, 550), (16_384, 1500)])
def test_a_stage_comes_after_a_fifth_of_the_window_was_said(strategy: Strategy, window: int, tokens: int) -> None:
    found = stages(ContextPolicy(strategy=strategy), window, tokens)

    said = TURNS * 2 * tokens
    assert 1 <= len(found) <= said / (0.19 * window)


def test_the_newest_messages_stay_where_they_leave_room_to_go_on() -> None:
    said = [Said(role, "word " * 80) for _ in range(40) for role in (Role.USER, Role.ASSISTANT)]

    assert shown(said, keep_recent=20) == 19
    assert shown(said, keep_recent=50) == 38  # down to the target


def shown(said: list[Said], keep_recent: int) -> int:
    policy = ContextPolicy(strategy=Strategy.TRUNCATION, keep_recent=keep_recent)
    return sum(message.position is not None for message in plan_context(asked(said, policy)).view.messages)


def asked(said: list[Said], policy: ContextPolicy) -> ContextInput:
    return conversation_input(said, policy=policy)


@pytest.mark.parametrize("strategy", [Strategy.TRUNCATION, Strategy.IMPORTANCE])
def test_next_to_nothing_is_not_taken_away(strategy: Strategy) -> None:
    said = [Said(role, "ok") for _ in range(10) for role in (Role.USER, Role.ASSISTANT)]
    context_input = conversation_input(said, user="word " * 4700, policy=ContextPolicy(strategy=strategy))

    plan = plan_context(context_input)

    assert plan.tokens > context_input.budget.threshold_tokens
    assert plan.fired == ()


def test_a_preview_shows_what_each_message_scores_and_what_is_left_out_below() -> None:
    said = [Said(Role.USER, "word " * 160), Said(Role.ASSISTANT, "ok"), Said(Role.ASSISTANT, "word " * 160)] * 30
    weights = ImportanceWeights(user=0.8, long_answer=0.5)
    policy = ContextPolicy(strategy=Strategy.IMPORTANCE, importance=weights, min_score_threshold=0.2)

    plan = preview_call(plan_next_call(asked(said, policy)))
    other = preview_call(plan_next_call(asked(said, ContextPolicy())))

    assert plan.min_score_threshold == 0.2
    assert [one.score for one in plan.messages[:3]] == [0.8, 0.1, 0.5]
    trimmed = {one.score for one in plan.messages if one.form is MessageVariant.TRIMMED}
    assert 0.1 in trimmed
    assert all(one.form is MessageVariant.TRIMMED for one in plan.messages[:-20] if one.score == 0.1)
    assert {one.score for one in other.messages} == {None}
    assert other.min_score_threshold is None
