"""The hook that an agent may name to be asked before each compaction: it may cancel, add wishes, or write the summary.

It is asked when a summary is going to be written, also ahead of its use, and again when one written ahead is going to
be used: then it may only cancel. A hook is the operator's own code. It raises or hangs at nobody's cost but its own:
the compaction then goes on as if there were none.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Trigger: TypeAlias = Literal["auto", "manual"]


@dataclass(frozen=True, slots=True)
class PreCompact:
    """What a hook is told.

    `tokens` is the prompt as it stands, `target_tokens` what the compaction aims at, both in the model's tokens. The
    summary to be written stands for the `message_count` messages from `from_position` to `through_position`; what lies
    before is summarised already. `must_compact` says that cancelling will be ignored, as the prompt would not fit
    otherwise.
    """

    trigger: Trigger
    agent: str
    session_id: str
    tokens: int
    target_tokens: int
    message_count: int
    from_position: int
    through_position: int
    instructions: str
    must_compact: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What a hook may answer (None: go on).

    `summary` is taken as the model's own text would be, checks included: for the messages the hook was told of, after
    what is summarised already. Where all that no longer fits the summary, a model makes one text of several.
    """

    cancel: bool = False
    instructions: str = ""
    summary: str = ""


Hook: TypeAlias = Callable[[PreCompact], Decision | None | Awaitable[Decision | None]]


class Hooks(Protocol):
    """Where hooks come from."""

    def get(self, name: str) -> Hook:
        """Return the hook `module:function`. Raises SettingInvalid where it cannot be imported or called."""
