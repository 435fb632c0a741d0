"""A session without chance in it: turns of given sizes, a summary prepared after each where one is due."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from context.play import Play
from context.random_session import Model
from context.step import Step
from context.strategies import Said, by_length
from throughline.context.budget import make_budget
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import ContextPolicy
from throughline.context.view.context_input import ContextInput
from throughline.context.view.placeholder_texts import NO_HINTS
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
        """The stages of the last ladder."""
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
