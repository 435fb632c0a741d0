"""One model call of a played session: what it was planned from, what was done, and what is sent."""

from dataclasses import dataclass
from functools import cached_property

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.fit_prompt import FittedPrompt, ShownMessage
from throughline.context.plan_context import ContextPlan
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view import View
from throughline.domain.message import Message


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
