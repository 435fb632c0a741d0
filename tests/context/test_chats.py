"""Whole conversations: nobody waits for what could be prepared, nothing is made again and again, reports are right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from context.play import Play, Step
from context.random_session import Model
from context.strategies import Said, by_length, conversation_input
from throughline.context.budget import make_budget
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.explain_context import NextAction, SummaryFacts, explain_context, next_plan
from throughline.context.fit_prompt import MessageVariant
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import Adopt, ContextPolicy, Strategy
from throughline.context.preview import Action, plan_next_call, preview_call
from throughline.context.view.context_input import ContextInput
from throughline.context.view.placeholder_texts import NO_HINTS
from throughline.context.view.view import kept_state, show
from throughline.context.view.view_state import ViewState, view_state_json
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall

CHARACTERS_A_TOKEN = 4
"""As `by_length` counts."""

FRAMING = 4


class _Never(Random):
    """No chance ever comes true."""

    def random(self) -> float:
        return 0.999


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn did before its calls, in their order, and what was prepared after it."""

    steps: tuple[Step, ...]
    prepared: bool

    @property
    def has_waited(self) -> bool:
        """Whether a summary was asked for while the user waited."""
        return any(step.outcome in {"summarised", "skipped", "failed"} for step in self.steps)

    @property
    def has_adopted(self) -> bool:
        return any(step.outcome == "prepared_adopted" for step in self.steps)

    @property
    def notes(self) -> tuple[str, ...]:
        """The stages that fired last."""
        return tuple(note for step in self.steps for note in step.fitted.notes)

    @property
    def has_made_room(self) -> bool:
        return any(step.plan.decision.trigger or step.plan.fired for step in self.steps) or bool(self.notes)


class Chat(Play):
    """A session of turns as they are asked for; its summaries take `summary_tokens`, and with `skips` are too large."""

    def __init__(
        self, policy: ContextPolicy | None = None, *, window: int = 8192, summary_tokens: int = 300, skips: bool = False
    ) -> None:
        super().__init__(0)
        self.policy = policy or ContextPolicy()
        self.model = Model("m1", make_budget(self.policy, window), 1.0)
        self.count = by_length
        self.summary_tokens, self.is_skipping = summary_tokens, skips
        self.random, self.skips = _Never(0), _Never(0)
        self.failing, self.tools_tokens, self.recall = 0.0, 0, NO_HINTS
        self.has_old_counts = self.is_cramped = self.is_busy = False

    def turn(self, user: int = 1, answer: int = 1, outputs: Iterable[int] = ()) -> Turn:
        """Play a turn whose texts take so many tokens, with a tool step for each of `outputs`."""
        self.own_from = len(self.stored.rows)
        self._load()
        text = _text(user)
        steps = [self._step(pending=NewMessage(Role.USER, text, Source.API))]
        self._say(Said(Role.USER, text))
        for size in outputs:
            steps.append(self._step())
            call = ToolCall(f"c{len(self.stored.rows)}", "search", "{}")
            self._say(Said(Role.ASSISTANT, "", (call,)), Said(Role.TOOL, _text(size), tool_call_id=call.id))
        steps.append(self._step())
        self._say(Said(Role.ASSISTANT, _text(answer)))
        return Turn(tuple(steps), self._prepared())

    def at_rest(self) -> ContextInput:
        """What a report on the session is made of."""
        self.own_from = len(self.stored.rows)
        self._load()
        return self._input(None, None)

    def _prepared(self) -> bool:
        before = self.prepared
        self.at_rest()
        self._prepare()
        return self.prepared is not before and self.prepared is not None

    def _say(self, *said: Said) -> None:
        self._append(said)
        self._take_in(len(said))

    def _compact(self, plan: ContextPlan, pending: NewMessage | None) -> tuple[str, tuple[int, ...]]:
        if self.is_skipping and plan.decision.action is not CompactionAction.ADOPT:
            return "skipped", ()
        return super()._compact(plan, pending)

    def _summary_text(self, rows: Sequence[Message]) -> str:  # noqa: ARG002  # of the size that was asked for
        return f"{self.cursor}: " + "fact " * int(self.summary_tokens * CHARACTERS_A_TOKEN / 5)


def _text(tokens: int) -> str:
    return "x" * max(CHARACTERS_A_TOKEN * (tokens - FRAMING), 2)


FACTS = SummaryFacts(agent="assistant", model="offline")


def waits(turns: Sequence[Turn]) -> int:
    return sum(turn.has_waited for turn in turns)


@pytest.mark.parametrize("summary_tokens", [300, 1200])
@pytest.mark.parametrize("size", [100, 300, 500, 600, 650, 700])
def test_no_turn_waits_for_a_summary_though_the_newest_messages_fill_half_the_window(
    size: int, summary_tokens: int
) -> None:
    chat = Chat(summary_tokens=summary_tokens)

    turns = [chat.turn(size, size) for _ in range(60)]

    assert waits(turns) <= 1
    assert sum(turn.has_adopted for turn in turns) > 5 if size > 100 else True
    assert not any(turn.notes for turn in turns[1:]) or size == 700


def test_what_made_the_prompt_smaller_lowers_where_growth_counts_from() -> None:
    """Else the prompt would be cut and trimmed for many turns while a summary lies ready."""
    chat = Chat(window=16_384, summary_tokens=1_400)
    for size in (*[200] * 4, *[1_900] * 4):
        chat.turn(size, size)

    talk = [chat.turn(50, 50) for _ in range(60)]

    assert any(turn.has_adopted for turn in talk[:12])
    assert (waits(talk), [turn.notes for turn in talk if turn.notes]) == (0, [])


def test_growth_counts_from_the_smallest_prompt_since_the_last_compaction() -> None:
    chat = Chat()
    for _ in range(3):
        chat.turn(300, 300)
    view = show(chat.at_rest(), ViewState(model="m1"))
    after = [
        replace(view, state=ViewState(compacted_to_tokens=tokens)) for tokens in (view.tokens - 1, view.tokens + 1)
    ]

    assert [kept_state(each).compacted_to_tokens for each in after] == [view.tokens - 1, view.tokens]
    assert kept_state(view).compacted_to_tokens is None


def test_tokens_that_stay_do_not_ask_for_a_summary_in_each_turn() -> None:
    """The newest messages, which are never summarised, may alone be more than K."""
    policy = ContextPolicy(max_tokens_before_summary=32_000, adopt=Adopt.IMMEDIATELY)
    chat = Chat(policy, window=200_000)

    turns = [chat.turn(10_000, 1_000) for _ in range(20)]

    assert 5 <= sum(turn.has_made_room for turn in turns) <= 10


@pytest.mark.parametrize(
    "policy", [ContextPolicy(max_messages_before_summary=5), ContextPolicy(max_tokens_before_summary=2_000)]
)
def test_not_every_turn_prepares_a_summary(policy: ContextPolicy) -> None:
    chat = Chat(policy, window=128_000)

    assert sum(chat.turn(500, 500).prepared for _ in range(20)) <= 10


def test_nothing_is_announced_where_nothing_can_be_summarised() -> None:
    chat = Chat(ContextPolicy(max_messages_before_summary=5, min_recent_messages=20), window=128_000)
    for _ in range(9):
        chat.turn()

        assert not next_plan(chat.at_rest()).is_summary_due
        assert explain_context(chat.at_rest(), FACTS).next_action is NextAction.NONE


def test_a_summary_that_was_not_worth_it_is_not_tried_before_every_call() -> None:
    chat = Chat(skips=True)
    for _ in range(8):
        chat.turn(300, 300)
    assert chat.prepared is None
    chat.view = view_state_json(ViewState(model="m1", trimmed_through_position=6))

    tried = [step.outcome for _ in range(3) for step in chat.turn(outputs=(5, 5)).steps if step.outcome]

    assert tried == ["skipped"]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 300), marks=pytest.mark.proof)])
def test_a_summary_is_only_due_where_one_can_be_written(seeds: range) -> None:
    in_vain = []
    for seed in seeds:
        play = Play(seed)
        for _ in play:
            pass
        in_vain += [seed] if play.was_due_in_vain else []

    assert in_vain == []


@pytest.mark.parametrize("adopting", list(Adopt))
def test_n_and_k_interrupt_no_tool_loop(adopting: Adopt) -> None:
    policy = ContextPolicy(max_messages_before_summary=10, max_tokens_before_summary=2_000, adopt=adopting)
    chat = Chat(policy, window=128_000)

    turns = [chat.turn(20, 20, outputs=[100] * 8) for _ in range(10)]

    assert not any(step.plan.decision.trigger for turn in turns for step in turn.steps[1:])
    assert sum(turn.prepared for turn in turns) > 5


def test_importance_is_applied_again_once_a_large_part_could_go() -> None:
    policy = ContextPolicy(strategy=Strategy.IMPORTANCE, usage_threshold=0.5, target=0.3)
    chat = Chat(policy, window=128_000)
    for _ in range(4):
        chat.turn(12_500, 12_500)

    talk = [chat.turn(5, 5) for _ in range(10)]

    assert 1 <= sum(bool(turn.steps[0].plan.fired) for turn in talk) <= 2
    assert explain_context(chat.at_rest(), FACTS).usage_percent < 50


def test_a_report_on_rows_that_are_not_loaded_says_that_something_is_left_out() -> None:
    chat = Chat()
    chat.turn(50, 50)
    context_input = chat.at_rest()

    report = explain_context(replace(context_input, history=context_input.history[1:]), FACTS)

    assert report.last_stage == "oldest_trimmed"
    assert report.unreduced_tokens >= report.total_tokens


POLICIES = [
    ContextPolicy(max_messages_before_summary=12),
    ContextPolicy(max_messages_before_summary=12, adopt=Adopt.IMMEDIATELY),
    ContextPolicy(max_tokens_before_summary=1_000),
    ContextPolicy(max_tokens_before_summary=1_000, adopt=Adopt.IMMEDIATELY),
    ContextPolicy(auto_summarize=False),
    ContextPolicy(),
]


@pytest.mark.parametrize("size", [5, 90, 400])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_action_is_what_the_next_turn_does(policy: ContextPolicy, size: int) -> None:
    """Asked at rest after every turn, and held against a turn of an empty message with an empty answer."""
    chat, seen = Chat(policy), set()
    for _ in range(40):
        chat.turn(size, size)
        told = explain_context(chat.at_rest(), FACTS).next_action
        seen.add(told)

        assert told is _done_by_a_turn(chat)

    assert NextAction.COMPACT in seen or size == 5 or policy.adopt is Adopt.AT_THRESHOLD
    assert NextAction.PREPARE in seen or not policy.auto_summarize or policy == ContextPolicy()


def _done_by_a_turn(chat: Chat) -> NextAction:
    """Play an empty turn in a copy of the chat."""
    other = Chat(chat.policy)
    other.failing = 1.0  # so that nothing is prepared, and what is due can be seen
    other.model, other.cursor, other.summary, other.prepared = chat.model, chat.cursor, chat.summary, chat.prepared
    other.view, other.stored.rows = dict(chat.view), list(chat.stored.rows)
    if other.turn().has_made_room:
        return NextAction.COMPACT
    return NextAction.PREPARE if next_plan(other.at_rest()).is_summary_due else NextAction.NONE


def test_the_answer_of_the_next_turn_counts_for_what_is_announced() -> None:
    chat, told = Chat(ContextPolicy(max_messages_before_summary=30)), []
    for _ in range(15):
        chat.turn()
        told.append(explain_context(chat.at_rest(), FACTS).next_action)

    assert told == [*[NextAction.NONE] * 13, NextAction.PREPARE, NextAction.NONE]


def test_a_preview_that_adopts_says_what_becomes_of_every_message() -> None:
    chat = Chat(window=16_384)
    while chat.prepared is None:
        chat.turn(995, 995)
    context_input = replace(chat.at_rest(), user=NewMessage(Role.USER, "x" * 12_000, Source.API))

    plan = preview_call(plan_next_call(context_input))

    gone = [item.position for item in plan.messages if item.form is MessageVariant.SUMMARISED]
    assert plan.action is Action.ADOPT
    assert [item.position for item in plan.messages] == [row.position for row in chat.stored.rows]
    assert gone == list(range(1, chat.prepared.through_position + 1))


def test_what_is_left_out_is_told_beside_what_is_sent() -> None:
    chat = Chat(ContextPolicy(auto_summarize=False))
    for _ in range(2):
        chat.turn(50, 50, outputs=[600] * 4)
    whole = explain_context(chat.at_rest(), FACTS)
    chat.turn(50, 50, outputs=[600] * 2)

    pruned = explain_context(chat.at_rest(), FACTS)

    assert (whole.last_stage, whole.unreduced_tokens) == (None, whole.total_tokens)
    assert pruned.last_stage == "pruned"
    assert pruned.unreduced_tokens > pruned.total_tokens + 1_000


@pytest.mark.parametrize("factor", [0.93, 1.0, 1.07])
def test_the_messages_of_a_preview_take_no_more_than_the_prompt(factor: float) -> None:
    said = [Said(role, "word " * 9) for _ in range(24) for role in (Role.USER, Role.ASSISTANT)]
    context_input = replace(conversation_input(said), factor=factor)

    plan = preview_call(plan_next_call(context_input))

    assert len(plan.messages) == 48
    assert sum(item.tokens for item in plan.messages) <= plan.tokens
    assert max(item.tokens for item in plan.messages) - min(item.tokens for item in plan.messages) <= 1
