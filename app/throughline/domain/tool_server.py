"""Servers of tools, which agents use by the Model Context Protocol (MCP), and the tools that they offer."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from throughline.domain.basic_types import JsonObject
from throughline.domain.elicitation import NO_ELICITATION, Elicitation
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext

NO_PROBLEMS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """How to request tokens for a server by OAuth 2.0 client credentials.

    `client_id` and `client_secret` name the service's variables with their values. `resource` is sent as what the token
    is for, '' for nothing.
    """

    token_url: str
    client_id: str
    client_secret: str
    scopes: tuple[str, ...] = ()
    resource: str = ""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A server as an agent file names it: a program to start (`command` and its arguments), or an address (`url`).

    - `variables`: the environment variables of the program, each with the name of the service's variable whose value it
      gets. It gets no others but PATH.
    - `headers`: the HTTP headers of requests, each with the name of the service's variable whose value it gets.
    - `oauth`: how to request tokens for `url`, None to send only what `headers` has.
    - `tools`: patterns, as the shell has them, of the names of the tools that the agent gets.
    - `needs_approval`: patterns of the names of the tools that run only after a person has approved the call.
    - `images`: whether the model gets the images of results; a model that takes none would refuse the conversation.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    oauth: ClientCredentials | None = None
    tools: tuple[str, ...] = ("*",)
    needs_approval: tuple[str, ...] = ()
    timeout_seconds: float = 30.0
    images: bool = False

    def connection_key(self) -> "ToolServer":
        """Return the server without the fields that do not affect its connection.

        Agents with equal keys share one connection.
        """
        return replace(self, tools=(), needs_approval=(), timeout_seconds=0.0, images=False)


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool of a server. `spec` has the name for the model, `name` is the one that the server knows.

    `is_repeatable`: whether the call may be made again if the outcome of the first one is unknown. `output_schema`: the
    JSON schema that its structured results must fit, None if there is none that can be checked within limits.
    """

    server: ToolServer
    name: str
    spec: ToolSpec
    is_repeatable: bool = False
    needs_approval: bool = False
    output_schema: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ServedTools:
    """The tools of an agent's servers. `problems` says by server why tools are missing."""

    tools: Sequence[ServedTool] = ()
    problems: Mapping[str, str] = field(default_factory=lambda: NO_PROBLEMS)

    def without(self, names: Collection[str]) -> "ServedTools":
        """Return these tools but those that the model knows by one of the names, which the agent's own tools have."""
        left_out = [tool for tool in self.tools if tool.spec.name in names]
        kept = replace(self, tools=[tool for tool in self.tools if tool.spec.name not in names])
        return kept.report_name_conflicts(left_out) if left_out else kept

    def report_name_conflicts(self, tools: Iterable[ServedTool]) -> "ServedTools":
        """Return these tools with a problem for each of `tools`, left out because another tool has the same name."""
        problems = dict(self.problems)
        for tool in tools:
            problem = f"the tool {tool.name!r} is left out: another tool has the name {tool.spec.name}"
            before = problems.get(tool.server.name)
            problems[tool.server.name] = f"{before}; {problem}" if before else problem
        return replace(self, problems=problems)

    def get(self, name: str) -> ServedTool | None:
        """Return the tool that the model knows by this name, None if no server has it."""
        return next((tool for tool in self.tools if tool.spec.name == name), None)


NO_SERVED_TOOLS = ServedTools()


@dataclass(frozen=True, slots=True)
class CallProgress:
    """How far a call is: `done` of `total` (None if the server does not say), and what it does now, '' if unknown."""

    done: float
    total: float | None
    text: str


def ignore_progress(_progress: CallProgress) -> None:
    """Ignore the progress of a call that nobody follows."""


@dataclass(frozen=True, slots=True)
class ServedCall:
    """A call of a server's tool: the model's JSON, and what its server asked before.

    `on_progress` is called with each progress notification of the server that is passed on.
    """

    tool: ServedTool
    arguments: str
    context: ToolContext
    elicitation: Elicitation = NO_ELICITATION
    on_progress: Callable[[CallProgress], None] = ignore_progress


class ServerState(StrEnum):
    """Whether a process is connected to a server.

    - UNUSED: no turn of the process has needed it yet.
    - FAILED: the last attempt or connection failed; a later turn tries again.
    """

    UNUSED = "unused"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ListChange:
    """What differed between a server's last two different lists: numbers of tools, and how long ago it was read."""

    added: int
    removed: int
    changed: int
    seconds_ago: float


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A server as one process knows it. It holds no values of headers and variables.

    - `agents`: names of the agents that name the server.
    - `reason`: why the connection failed, '' in other states.
    - `tools`: the number of tools that it listed last, whatever agents get of them.
    - `problems`: which of its tools were left out, and why.
    - `protocol`: the revision of the protocol of the last connection.

    Other fields are None while they are unknown.
    """

    name: str
    state: ServerState
    agents: tuple[str, ...] = ()
    reason: str = ""
    tools: int | None = None
    protocol: str | None = None
    listed_seconds_ago: float | None = None
    problems: tuple[str, ...] = ()
    last_change: ListChange | None = None
