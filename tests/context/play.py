"""Plays random sessions through the context engine, one model call after the other, in the service's order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from random import Random
from uuid import UUID

from context.random_session import (
    PINNED_SHARE,
    WINDOWS,
    Author,
    Conversation,
    Stored,
    arbitrary_state,
    random_count,
    random_model,
    random_policy,
)
from context.strategies import Said, stored
from throughline.context.budget import make_budget, summary_limit
from throughline.context.calibration import HIGHEST_RATIO, scale, unscale
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.explain_context import NEXT_MESSAGE, next_plan
from throughline.context.fit_prompt import FittedPrompt, ShownMessage, fit_view
from throughline.context.measure import tokens_of
from throughline.context.plan_context import ContextPlan, backlog, plan_context, with_effective_state
from throughline.context.policy import Strategy
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import split_at_cuts
from throughline.context.view.placeholder_texts import NO_HINTS, RECALL_TOOLS, hints_for
from throughline.context.view.view import View, kept_state, next_view, waiting_for_growth
from throughline.context.view.view_state import ViewState, view_state_from, view_state_json
from throughline.domain.basic_types import JsonObject, SummaryId
from throughline.domain.message import Message, NewMessage, Role, Source
from throughline.domain.summary import Prepared


@dataclass(frozen=True)
class Step:
    """One model call as it was prepared (`is_sent`), or the plan made for the text that is not stored yet.

    `given` are the positions a summariser was shown, of which `cursor` is the last that counts. `upset` says why the
    prompt need not begin with the one before although nothing fired. `compacted` is the view right after a
    compaction; `grown_from` what the session took after the last one (ours), under the same model.
    """

    raw: ContextInput
    plan: ContextPlan
    forced: CompactionTrigger | None
    outcome: str
    given: tuple[int, ...]
    compacted: View | None
    grown_from: int | None
    fitted: FittedPrompt
    rows: tuple[Message, ...]
    upset: str
    is_sent: bool

    @cached_property
    def shown(self) -> tuple[ShownMessage, ...]:
        """What became of every loaded message."""
        return self.fitted.shown

    @property
    def fired(self) -> tuple[str, ...]:
        return (*self.plan.fired, *self.fitted.notes, *((self.outcome,) if self.compacted is not None else ()))


LESS_THAN_REFUSED = 0.9
PAGE_MESSAGES = 20
STRAY_SHARE = 0.2
"""So many prepared summaries end anywhere: results that came late have made their end illegal."""

SKIPPED_SHARE = 0.05
"""So many summaries turn out to be no smaller than what they would stand for."""

OLD_COUNTS_SHARE = 0.1
"""So many sessions hold counts that another counter took, much too small ones."""

LEAST_LEFT = 150
"""With less beside the tools a prompt may not fit at all, and that is no fault."""

CRAMPED_SHARE, CRAMPED_WINDOW, CRAMPED_LEFT = 0.08, 1000, (60, 110)
"""So many sessions have a model that its tools nearly fill, leaving so many tokens: the last stages' province."""

BUSY_SHARE, BUSY_STEPS, BUSY_WINDOW = 0.06, (6, 10, 14), 16_384
"""So many sessions have turns of so many tool steps, in windows up to this one: a turn outgrows its prompt alone."""

STAGES = {"history_truncated", "unimportant_left_out"}
"""What the strategies that write no summaries do at the threshold."""

TIME = datetime(2026, 1, 1, tzinfo=UTC)


class Play:
    """One session of `seed`. Iterating yields its steps.

    `was_due_in_vain`: a summary was said to be due, and there was nothing that one could have stood for.
    """

    was_due_in_vain = False

    def __init__(self, seed: int) -> None:
        self.random, self.skips = Random(seed), Random(f"skips of {seed}")
        chance = self.random.random
        window = self.random.choice(WINDOWS)
        self.policy = random_policy(self.random, window)
        self.model = random_model(self.random, self.policy, window, "m1")
        self.count: Callable[[str], int] = random_count(self.random)
        damage = self.random.choice((0.0, 0.0, 0.15, 0.4))
        self.author = Author(self.random, window, damage, large=self.random.choice((0.03, 0.1, 0.3)))
        self.failing = self.random.choice((0.0, 0.0, 0.3, 1.0))
        self.stored = Stored()
        self.own_from = 0
        self.cursor, self.summary = 0, ""
        self.versions: list[tuple[int, str]] = [(0, "")]
        self.prepared: Prepared | None = None
        self.view: JsonObject = {}
        self.grown_from: int | None = None
        self.upset = ""
        self.tools_tokens = self.random.choice((0, 0, window // 20))
        self.recall = hints_for(RECALL_TOOLS) if chance() < 0.3 else NO_HINTS
        self.conversation = Conversation((), (), ())
        self.has_old_counts = chance() < OLD_COUNTS_SHARE
        self.is_cramped = chance() < CRAMPED_SHARE
        self.is_busy = chance() < BUSY_SHARE and window <= BUSY_WINDOW and not self.is_cramped
        if self.is_cramped:
            self.tools_tokens = self._nearly_all()

    def __iter__(self) -> Iterator[Step]:
        chance = self.random.random
        for _ in range(self.random.choice((0, 0, 1, 5, 15))):
            self._append(self.author.turn())
        if self.is_cramped:
            self._append(self.author.turn())
            self.stored.pin(self.random, self._pin_room(), single=True)
        if chance() < 0.05:
            self.view = view_state_json(arbitrary_state(self.random, self.model.key, len(self.stored.rows)))
        for _ in range(self.random.choice((1, 2, 3, 6))):
            yield from self._turn()
            self._between_turns()

    def _turn(self) -> Iterator[Step]:
        random = self.random
        user = self.author.user()
        self.own_from = len(self.stored.rows)
        if self.conversation.own and self.conversation.own[0].position <= self.cursor:
            self.upset = self.upset or "the summarised user message of a turn is shown in that turn only"
        self._load()
        yield self._step(pending=NewMessage(Role.USER, user.content, Source.API))
        self._append([user])
        self._take_in(1)
        for _ in range(random.choice(BUSY_STEPS if self.is_busy else (0, 0, 1, 1, 4))):
            yield from self._call()
            said = self.author.step()
            self._append(said)
            self._take_in(len(said))
            if random.random() < 0.04:
                self._resume()
        yield from self._call()
        self._append([self.author.answer()])

    def _call(self) -> Iterator[Step]:
        step = self._step()
        yield step
        if self.is_cramped:
            return
        budget = self.model.budget
        is_full = step.fitted.tokens > 0.6 * budget.budget_tokens and budget.window_tokens >= WINDOWS[2]
        if is_full and self.random.random() < 0.15:
            grown = min(self.model.factor * self.random.choice((1.05, 1.3, 1.5)), HIGHEST_RATIO)
            cap = int(LESS_THAN_REFUSED * step.fitted.raw_tokens)
            has_cut_pins = step.fitted.view_state.pins_to_tokens is not None  # their calls' ids are all they still give
            if has_cut_pins or min(unscale(budget.budget_tokens, grown), cap) < self.tools_tokens + LEAST_LEFT:
                return
            self.model = replace(self.model, factor=grown)
            yield self._step(cap_tokens=cap)
        elif self.random.random() < 0.3:
            self.model = replace(self.model, factor=self.model.factor * self.random.choice((0.97, 0.995, 1.004)))

    def _step(self, pending: NewMessage | None = None, cap_tokens: int | None = None) -> Step:
        """What is done before a model call, in the service's order."""
        raw = self._input(pending, cap_tokens)
        forced = None if cap_tokens is None else CompactionTrigger.OVERFLOW
        plan = plan_context(raw, forced=forced)
        grown_from, before = self.grown_from, self.cursor
        view, outcome = plan.view, ""
        given: tuple[int, ...] = ()
        if plan.decision.trigger is not None:
            outcome, given = self._compact(plan, pending)
            if outcome == "skipped":
                view, self.grown_from = waiting_for_growth(view), view.tokens
        compacted = None
        if self.cursor != before:
            fresh = self._input(pending, cap_tokens)
            view = compacted = next_view(with_effective_state(replace(fresh, view_state=plan.view_state)))
            self.grown_from = view.tokens
        if plan.decision.trigger is not None or plan.fired:
            self._keep(view)
        fitted = fit_view(view)
        upset = self.upset
        if pending is None:
            self.upset = ""
            if fitted.notes:
                self._keep(fitted.view)
        self._note_stage(plan, fitted, is_kept=pending is None)
        return Step(
            raw, plan, forced, outcome, given, compacted, grown_from, fitted, tuple(self.stored.rows), upset,
            pending is None,
        )  # fmt: skip

    def _note_stage(self, plan: ContextPlan, fitted: FittedPrompt, *, is_kept: bool) -> None:
        """Growth counts from a strategy's stage too, and from the last stages where that leaves less."""
        if uses_summaries(self):
            return
        if STAGES & set(plan.fired):
            self.grown_from = plan.raw_tokens
        if self.grown_from is not None and fitted.notes and is_kept:
            self.grown_from = min(self.grown_from, fitted.raw_tokens)

    def _compact(self, plan: ContextPlan, pending: NewMessage | None) -> tuple[str, tuple[int, ...]]:
        """Adopt what is prepared, or write a summary: all of it, a part, or nothing."""
        prepared = self.prepared
        if plan.decision.action is CompactionAction.ADOPT and prepared is not None:
            self._adopt(prepared.through_position, prepared.text)
            return "prepared_adopted", ()
        if self.random.random() < self.failing:
            return "failed", ()
        if self.skips.random() < SKIPPED_SHARE:
            return "skipped", ()
        rows = self._to_read(plan, pending)
        if not rows:
            return "failed", ()
        outcome = "summarised"
        if self.random.random() < 0.1:
            pieces = split_at_cuts(rows)
            some = tuple(row for piece in pieces[: self.random.randint(1, len(pieces))] for row in piece)
            outcome, rows = "summarised" if len(some) == len(rows) else "summarised_in_part", some
        self._adopt(rows[-1].position, self._summary_text(rows))
        return outcome, tuple(row.position for row in rows)

    def _to_read(self, plan: ContextPlan, pending: NewMessage | None) -> tuple[Message, ...]:
        """Return what the plan names, after what lies before the loaded rows, read in pages that fill a window."""
        rows: tuple[Message, ...] = ()
        cursor, there = self.cursor, self.conversation
        while plan.decision.must_load_first:
            page = self._page(cursor, plan.decision.through_position)
            if not page:
                return rows
            rows, cursor = (*rows, *page), page[-1].position
            there = replace(there)
            there.behind(cursor)
            context_input = self._input(pending, None, there)
            plan = plan_context(
                replace(context_input, summary_through_position=cursor, prepared=None), forced=plan.decision.trigger
            )
        return (*rows, *plan.decision.to_summarise)

    def _page(self, cursor: int, through: int | None) -> tuple[Message, ...]:
        """Read on page by page until a window is full and something of it can be summarised."""
        found: list[Message] = []
        for start in range(cursor, len(self.stored.rows), PAGE_MESSAGES):
            found += self.stored.rows[start : start + PAGE_MESSAGES]
            is_much = sum(row.token_count for row in found) >= self.model.budget.window_tokens
            if is_much and backlog(found, through):
                break
        return backlog(found, through)

    def _adopt(self, cursor: int, text: str) -> None:
        self.cursor, self.summary, self.prepared = cursor, text, None
        self.versions.append((cursor, text))
        self.conversation.behind(cursor)

    def _keep(self, view: View) -> None:
        self.view = view_state_json(kept_state(view))
        if self.grown_from is not None:
            self.grown_from = min(self.grown_from, view.tokens)

    def _between_turns(self) -> None:
        """Prepare the next summary; and now and then pin, unpin, change the model, ask for a summary, or go back."""
        random, chance = self.random, self.random.random()
        self.own_from = len(self.stored.rows)
        running = self.conversation.own
        self._load()
        self._prepare()
        if self.is_cramped:
            pass
        elif chance < 0.15 and self.stored.pin(random, self._pin_room()):
            self.upset = "a message was pinned"
        elif 0.15 <= chance < 0.17 and self.stored.unpin(random):
            self.upset = "a pin was taken off"
        elif 0.17 <= chance < 0.24:
            self._change_model()
        elif 0.24 <= chance < 0.28:
            self._summarise_on_request()
        elif 0.28 <= chance < 0.30:
            self.cursor, self.summary = random.choice(self.versions)
            self.view, self.prepared, self.upset = self._restored(), None, "an older summary was restored"
            self.grown_from = None
        self.conversation.own = running

    def _restored(self) -> JsonObject:
        """The view that a restore leaves: nothing is done to it, and the triggers count from here."""
        last = len(self.stored.rows)
        state = ViewState(skipped_through_position=last, restored_at_position=last, summary_position=self.cursor)
        return view_state_json(state)

    def _prepare(self) -> None:
        if not next_plan(self._input(None, None)).is_summary_due or self.random.random() < self.failing:
            return
        context_input, there = self._input(NEXT_MESSAGE, None), replace(self.conversation)
        if self.prepared is not None:
            there.behind(self.prepared.through_position)
            context_input = replace(
                self._input(NEXT_MESSAGE, None, there),
                summary=self.prepared.text,
                summary_tokens=self.prepared.token_count,
                summary_through_position=self.prepared.through_position,
            )
        further = plan_context(context_input, forced=CompactionTrigger.MANUAL)
        self.was_due_in_vain = self.was_due_in_vain or further.decision.trigger is None
        if further.decision.trigger is None or further.decision.must_load_first or not further.decision.to_summarise:
            return
        text = self._summary_text(further.decision.to_summarise)
        through = further.decision.to_summarise[-1].position
        if self.random.random() < STRAY_SHARE:
            through = self.random.choice(further.decision.to_summarise).position
        self.prepared = Prepared(SummaryId(UUID(int=1)), 0, text, self.count(text), through, TIME, "fake")

    def _summarise_on_request(self) -> None:
        plan = plan_context(self._input(None, None), forced=CompactionTrigger.MANUAL)
        if plan.decision.trigger is None:
            return
        before = self.cursor
        self._compact(plan, None)
        if self.cursor != before:
            self.upset, self.grown_from = "the user asked for a summary", None

    def _change_model(self) -> None:
        window = self.model.budget.window_tokens
        wanted = self.random.choice((window // 4, window // 2, window * 2, window * 8))
        window = min(max(wanted, 1000, 3 * self.tools_tokens), 2_000_000)
        key = self.random.choice(("m1", "m2", "m3"))
        changed = random_model(self.random, self.policy, window, key)
        if scale(self.tools_tokens + LEAST_LEFT, changed.factor) > changed.budget.budget_tokens:
            return
        self.upset = "the model was changed"
        if key != self.model.key:
            self.grown_from = None
        self.model = changed

    def _resume(self) -> None:
        """The run is taken up by another process: what it holds is loaded again, with pins set meanwhile."""
        if self.random.random() < 0.5 and not self.is_cramped and self.stored.pin(self.random, self._pin_room()):
            self.upset = "a message was pinned"
        self._load()

    def _pin_room(self) -> int:
        return unscale(int(PINNED_SHARE * self.model.budget.window_tokens), self.model.factor)

    def _nearly_all(self) -> int:
        """So many tokens of tools that next to nothing of the window is left for messages."""
        self.model = replace(self.model, budget=make_budget(self.policy, CRAMPED_WINDOW))
        left = self.random.randint(*CRAMPED_LEFT)
        return max(unscale(self.model.budget.budget_tokens, self.model.factor) - left, 0)

    def _load(self) -> None:
        self.conversation = self.stored.load(self.cursor, self.own_from, 2 * self.model.budget.window_tokens)

    def _input(
        self, pending: NewMessage | None, cap_tokens: int | None, there: Conversation | None = None
    ) -> ContextInput:
        held = there or self.conversation
        passed = tuple(row for row in held.own if row.pinned and row.position <= self.cursor)
        return ContextInput(
            policy=self.policy,
            budget=self.model.budget,
            factor=self.model.factor,
            system_prompt="You are a helpful assistant.",
            tools_tokens=self.tools_tokens,
            summary=self.summary,
            summary_tokens=self.count(self.summary) if self.summary else 0,
            summary_through_position=self.cursor,
            history=held.history,
            own=held.own,
            user=pending,
            count=self.count,
            counter_name="test",
            pinned=(*held.pinned, *passed),
            view_state=view_state_from(self.view),
            prepared=self.prepared,
            model_key=self.model.key,
            cap_tokens=cap_tokens,
            recall=self.recall,
        )

    def _append(self, said: Sequence[Said]) -> None:
        rows = stored(said, self.count, first=len(self.stored.rows) + 1)
        if self.has_old_counts:
            rows = tuple(replace(row, counter="another", token_count=row.token_count // 4 + 1) for row in rows)
        self.stored.rows.extend(rows)

    def _take_in(self, number: int) -> None:
        self.conversation.own = (*self.conversation.own, *self.stored.rows[-number:])

    def _summary_text(self, rows: Sequence[Message]) -> str:
        """A summary of any size that the summariser may write: smaller than what it replaces, unless that is small."""
        replaced = self.count(self.summary) + sum(tokens_of(row, "test", self.count) for row in rows)
        limit = unscale(summary_limit(self.policy.summary, self.model.budget), self.model.factor)
        limit = min(limit, max(replaced, SMALL_SUMMARY_TOKENS) - 1)
        tokens = self.random.choice((limit, limit, limit // 2, min(limit, 30)))
        unit = max(self.count("fact " * 100) / 100, 1)
        return f"{self.cursor}: " + "fact " * max(int((tokens - 8) / unit), 1)


def uses_summaries(play: Play) -> bool:
    return play.policy.strategy is Strategy.SUMMARIZATION and play.policy.auto_summarize
