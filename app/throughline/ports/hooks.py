"""The hook that an agent may define for its compactions: it may cancel, add instructions, or write the summary.

The hook is called before a summary is written, also one prepared in advance. It is called again before a prepared
summary is adopted; then it may only cancel. A hook is a plugin. If it raises or hangs, the compaction continues without
it.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from throughline.domain.elicitation import Elicitation
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.domain.tool_server import ServedCall, ServedTools, ServerReport, ToolServer


class Tools(Protocol):
    """The tools that agents may use."""

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specifications of the named tools. Raises SettingInvalid for an unknown name."""

    def is_repeatable(self, name: str) -> bool:
        """Whether the tool may be called again if its first result is unknown (True for unknown tools)."""

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Run one call. Unknown tools, bad arguments, exceptions and timeouts become error results."""


class ToolServers(Protocol):
    """The servers of tools that agents use; connections are made when they are first needed, and kept."""

    async def tools_of(self, servers: Sequence[ToolServer], *, is_patient: bool = False) -> ServedTools:
        """Return the tools of the servers. One that cannot be reached in time is a problem, not an error.

        With `is_patient` each server has as long as it may take to connect.
        """

    def known_tools(self, servers: Sequence[ToolServer]) -> ServedTools:
        """Return the tools that the servers listed last. None is connected; one without a list is a problem."""

    def report(self, server: ToolServer) -> ServerReport:
        """Return what this process knows of the server, without the agents that name it."""

    async def keep_only(self, servers: Collection[ToolServer]) -> None:
        """End the connections to all other servers, which no agent names any more, and make none to them again."""

    async def call(self, call: ServedCall) -> ToolOutcome | Elicitation:
        """Call the tool and return its outcome, or what its server asks a person first.

        Every error becomes an outcome that the model can read.
        """


Trigger: TypeAlias = Literal["auto", "manual"]


@dataclass(frozen=True, slots=True)
class PreCompact:
    """The hook's input.

    `tokens` is the prompt's current size and `target_tokens` the size the compaction aims at, both in the model's
    tokens. The new summary will cover the `message_count` messages from `from_position` to `through_position`; earlier
    messages are already summarised. With `must_compact` a cancel is ignored, because the prompt would not fit
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
    """The hook's answer (None: continue unchanged).

    `summary` is used like a model's text and validated the same way. It covers only the messages named in the hook's
    input, after the existing summary. If the whole summary becomes too long, a model merges it.
    """

    cancel: bool = False
    instructions: str = ""
    summary: str = ""


Hook: TypeAlias = Callable[[PreCompact], Decision | None | Awaitable[Decision | None]]


class Hooks(Protocol):
    """The source of hooks, by name."""

    def get(self, name: str) -> Hook:
        """Return the hook named `module:function`. Raises SettingInvalid if it cannot be imported or called."""
