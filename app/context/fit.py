"""The last rung: turns a conversation into a prompt that fits the budget, whatever is in it.

Called before every model call. While everything fits, everything is shown, so that each prompt begins with the one
before; only then do the rungs of `rungs.LADDER` take something away, in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.context.calibration import scale, unscale
from app.context.measure import REPLY_TOKENS, count_system
from app.context.plan import ContextInput
from app.context.rungs import LADDER
from app.context.view import Form, View, list_messages, open_view, system_text
from app.domain.errors import PromptCannotFit
from app.domain.message import Message, Role
from app.domain.prompt import Prompt, PromptMessage
from app.domain.text import is_blank


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """How one stored message after the cursor appears in the prompt."""

    position: int
    form: Form


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt within the budget.

    `raw_tokens` is our count of it, tools included; `tokens` is that times the factor. `notes` names the rungs that
    fired, in order. `rows` are the stored messages after the cursor, `hidden` those that a rung left out.
    """

    prompt: Prompt
    tokens: int
    raw_tokens: int
    notes: tuple[str, ...]
    rows: tuple[Message, ...]
    hidden: Mapping[int, Form]

    @property
    def shown(self) -> tuple[ShownMessage, ...]:
        """What became of every stored message after the cursor."""
        by_position = {message.position: message for message in self.prompt.messages}
        return tuple(
            ShownMessage(row.position, self.hidden.get(row.position) or _form(row, by_position.get(row.position)))
            for row in self.rows
        )


def fit_prompt(inp: ContextInput) -> FittedPrompt:
    """Return the prompt for one model call, valid for strict providers and never over the budget.

    Raises PromptCannotFit only where system prompt and tools alone leave no room for a message.
    """
    listed = list_messages(inp)
    system = system_text(inp, inp.summary)
    system_tokens = count_system(system, inp.count)
    raw_tokens = system_tokens + inp.tools_tokens + REPLY_TOKENS + sum(listed.counts)
    limit = unscale(inp.budget.budget_tokens, inp.factor)
    if raw_tokens > limit:
        return _climb(inp, open_view(inp, listed, system_tokens), limit)
    return FittedPrompt(
        prompt=Prompt(system=system, messages=listed.messages),
        tokens=scale(raw_tokens, inp.factor),
        raw_tokens=raw_tokens,
        notes=(),
        rows=inp.rows,
        hidden={},
    )


def _climb(inp: ContextInput, view: View, limit: int) -> FittedPrompt:
    notes: list[str] = []
    for name, rung in LADDER:
        if view.tokens <= limit:
            break
        lower = rung(view, limit)
        if lower is not view:
            notes.append(name)
        view = lower
    if view.tokens > limit:
        raise PromptCannotFit(_no_room(inp, view))
    return FittedPrompt(
        prompt=view.prompt,
        tokens=scale(view.tokens, inp.factor),
        raw_tokens=view.tokens,
        notes=tuple(notes),
        rows=inp.rows,
        hidden=dict.fromkeys(view.trimmed.positions, Form.TRIMMED) | dict.fromkeys(view.folded.positions, Form.FOLDED),
    )


def _form(row: Message, shown: PromptMessage | None) -> Form:
    """Compare what is shown with what is stored; a placeholder for an empty text hides nothing."""
    if shown is None:
        return Form.LEFT_OUT
    arguments = [call.arguments for call in shown.tool_calls]
    is_same = row.role is Role.USER or arguments == [call.arguments for call in row.tool_calls]
    if is_same and (shown.content == row.content or not _has_text(row)):
        return Form.WHOLE
    return Form.TRUNCATED


def _has_text(row: Message) -> bool:
    return not isinstance(row.content, str) or not is_blank(row.content)


def _no_room(inp: ContextInput, view: View) -> str:
    return (
        f"the smallest possible prompt takes {scale(view.tokens, inp.factor)} tokens and only "
        f"{inp.budget.budget_tokens} of the window of {inp.budget.window_tokens} may be used: "
        "shorten the system prompt, name fewer tools, or use a model with a larger window"
    )
