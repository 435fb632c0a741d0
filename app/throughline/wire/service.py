"""JSON shapes of the service itself: its agents, its health, and problems with requests."""

from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from throughline.domain.keys import TOKEN_SCOPES, ApiKey, Scope
from throughline.domain.model_window import WindowOrigin
from throughline.domain.service_status import ProcessKind, ProcessReport, QueueState, ServiceStatus, WorkQueue
from throughline.domain.tool_server import ServerState
from throughline.domain.usage_report import CallPurpose, UsageGroup, UsageKey
from throughline.wire.json_shape import Id, JsonDict, Shape, Time, one_of


class UsageOut(Shape):
    """Tokens as the provider reported them, and their cost; null for what is not known."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = Field(None, description="of the input, read from the provider's cache")
    cache_write_tokens: int | None = Field(None, description="of the input, written to the provider's cache")
    reasoning_tokens: int | None = Field(None, description="of the output, not part of the answer's text")
    cost_usd: float | None = Field(None, description="US dollars at the price of the day; null if a price is unknown")


class UsageGroupOut(UsageOut):
    """The calls of one group, added up. `cost_usd` is the sum of the known costs, null if none is known."""

    group: Annotated[
        dict[str, str | None],
        Field(description="the group's value of each field of `group_by`; null: calls of no single user or agent"),
    ]
    calls: int
    unpriced_calls: int = Field(description="calls whose cost is unknown and is not part of `cost_usd`")


class UsageReportOut(Shape):
    """What model calls used between two times: `since` is included, `until` is not."""

    since: Time
    until: Time
    data: list[UsageGroupOut]


def group_json(group: UsageGroup) -> JsonDict:
    """Return a group of calls in the shape of UsageGroupOut."""
    usage = UsageOut.render(group.usage)
    key: dict[UsageKey, str | None] = {**group.key}
    return {
        "group": {name.value: value for name, value in key.items()},
        "calls": group.calls,
        "unpriced_calls": group.unpriced_calls,
        **usage,
    }


class ErasedUserOut(Shape):
    """What went with an erased user: numbers of rows, and what stays elsewhere."""

    name: str
    sessions: int
    messages: int
    runs: int
    memories: int
    keys: int = Field(description="API keys, revoked ones too")
    access_tokens: int
    slack_people: int = Field(description="people in Slack that were linked to the user")
    model_calls: int = Field(description="records of what was paid for the user")
    keeps_costs: bool = Field(description="true: these records stay, without user, session and run")
    shared_sessions: list[Id] = Field(
        description="sessions of other owners in which these people in Slack could write; what they wrote there stays"
    )


class AccessTokenOut(Shape):
    """A short-lived token for a browser. It is shown only once."""

    token: str = Field(description="sent as `Authorization: Bearer <token>`, or as `access_token` to an event stream")
    expires_at: Time
    scopes: list[Annotated[str, one_of(*TOKEN_SCOPES)]]
    session_ids: list[Id] | None = Field(description="null: all sessions of the user")


class KeyOut(Shape):
    """An API key, without its secret."""

    id: Id
    prefix: str = Field(description="the characters after `tl_`")
    user: str = Field(description="the user whose data the key reaches")
    name: str
    scopes: list[Annotated[str, one_of(*Scope)]]
    created_at: Time
    last_used_at: Time | None = Field(description="known to the minute; null: never used")
    revoked_at: Time | None
    is_own: bool = Field(description="the request was sent with this key")


class KeyList(Shape):
    """All keys, oldest first, revoked ones too."""

    data: list[KeyOut]


class CreatedKeyOut(Shape):
    """A new API key. Its secret is shown only once."""

    id: Id
    prefix: str
    secret: str = Field(description="sent as `Authorization: Bearer <secret>`; it is not stored")
    user: str
    name: str
    scopes: list[Annotated[str, one_of(*Scope)]]


class RevokedKeyOut(KeyOut):
    """A key that was just revoked, and what follows for requests that send it."""

    note: str = Field(description="until when the key may still work, and whether it is the request's own")


def key_json(key: ApiKey, *, is_own: bool) -> JsonDict:
    """Return a key in the shape of KeyOut."""
    return {
        "id": str(key.id),
        "prefix": key.prefix,
        "user": key.user_name,
        "name": key.name,
        "scopes": [scope.value for scope in sorted(key.scopes)],
        "created_at": key.created_at.isoformat(),
        "last_used_at": None if key.last_used_at is None else key.last_used_at.isoformat(),
        "revoked_at": None if key.revoked_at is None else key.revoked_at.isoformat(),
        "is_own": is_own,
    }


class AgentOut(Shape):
    """An agent that sessions can be opened with; `context` is its context policy."""

    name: str
    description: str
    model: str = Field(description="empty: the model of the setting `default_llm`")
    window: int = Field(description="tokens that the agent's next turn may use, prompt and answer together")
    window_from: Annotated[str, one_of(*WindowOrigin)] = Field(
        description="where `window` comes from; `learned`: a provider's refusal named it; `unknown`: it is assumed"
    )
    tools: list[str]
    mcp_servers: list[str] = Field(default_factory=list, description="names of the servers whose tools it has, too")
    max_tool_rounds: int
    max_client_rounds: int
    reasoning: str = Field("show", description="what becomes of what models write before an answer: show, store, drop")
    parameters: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="what is sent with every call of the model; of headers and body only the names",
    )
    daily_budget: dict[str, JsonValue] = Field(
        default_factory=dict, description="what each user may spend in a day: `usd` and `tokens`, null without a limit"
    )
    overrides: list[str] = Field(default_factory=list, description="what a request may change for its turn")
    override_models: list[str] = Field(default_factory=list, description="models that a request may name")
    context: dict[str, JsonValue]


class AgentList(Shape):
    """All agents, ordered by name."""

    data: list[AgentOut]


class Health(Shape):
    """Whether the answering process can work, with the result of each check."""

    status: Annotated[str, one_of("ok", "degraded", "unavailable")]
    version: str
    checks: dict[str, bool]
    reasons: dict[str, str] = Field(
        default_factory=dict, description="for failing checks: since when and why, if known"
    )


class ProcessOut(Shape):
    """A process at its last heartbeat."""

    id: Id
    kind: Annotated[str, one_of(*ProcessKind)]
    name: str = Field(description="the `worker` of the runs that it holds")
    version: str
    started_at: Time
    heartbeat_at: Time
    up_seconds: float
    since_heartbeat_seconds: float
    is_silent: bool = Field(description="heartbeats are overdue: the process may have died")
    takes_turns: bool
    concurrency: int = Field(description="turns that it runs at once; 0: it takes none, or only those of one user")
    open_turns: int
    jobs_in_hand: int
    is_listening: bool = Field(
        description="it receives notifications, or is set to poll alone; if false, it polls until it can listen again"
    )


class QueueOut(Shape):
    """Waiting items, and the seconds that the oldest has waited, null if there is none."""

    waiting: int
    oldest_seconds: float | None


class WorkOut(QueueOut):
    """Work of one kind: waiting, in progress, and given up in the last 24 hours."""

    kind: str
    retrying: int = Field(description="of the waiting items, those that have failed before")
    in_hand: int
    failed: int


class HeldRunsOut(Shape):
    """The running turns of one process."""

    worker: str
    runs: int
    expired: int = Field(description="turns whose lease has ended, so that any worker may take them")
    lease_seconds: float = Field(description="time until the first lease ends; negative if it has ended")
    oldest_seconds: float


class ModelBreakerOut(Shape):
    """The circuit breaker of a model: after several failures in a row the model is not called for a while."""

    model: str
    purpose: Annotated[str, one_of(CallPurpose.ANSWER, CallPurpose.SUMMARY)]
    state: Annotated[str, one_of("closed", "open", "half_open")] = Field(
        description="`half_open`: the next call is a trial"
    )
    retry_after_seconds: float = Field(description="rest of the pause; 0 unless the state is `open`")


class AgentOriginOut(Shape):
    """The file from which an agent in use was read."""

    agent: str
    file: str | None = Field(description="its name in `AGENTS_DIR`; null: the agent comes with the service")
    read_at: Time | None = Field(description="when the definition in use was read first; null: from no file")


class AgentFileErrorOut(Shape):
    """Why an agent file cannot be used."""

    file: str | None = Field(description="its name in `AGENTS_DIR`; null: the error is not one file's alone")
    detail: str


class RefusedAgentFilesOut(Shape):
    """Changed agent files that cannot be used. All agents stay as they were until every file is right."""

    at: Time
    errors: list[AgentFileErrorOut]


class AgentFilesOut(Shape):
    """The agents in use with their files."""

    agents: list[AgentOriginOut] = Field(description="ordered by name")
    refused: RefusedAgentFilesOut | None = Field(description="null: the files as they are now are in use")


class ListChangeOut(Shape):
    """How many tools differed between the last two different lists of a server."""

    added: int
    removed: int
    changed: int = Field(description="tools with another description or other parameters than before")
    seconds_ago: float


class ToolServerOut(Shape):
    """A server of tools that agents name, as the process that answers knows it."""

    name: str
    agents: list[str] = Field(description="the agents that name it; those that share a connection have one entry")
    state: Annotated[str, one_of(*ServerState)] = Field(
        description="`unused`: no turn of the process has needed it yet; `failed`: a later turn tries again"
    )
    reason: str = Field(description="why it failed; empty in other states")
    tools: int | None = Field(description="number of tools that it listed last, whatever agents get; null: no list yet")
    protocol: str | None = Field(description="revision of the protocol of the last connection")
    listed_seconds_ago: float | None = Field(description="age of the list")
    problems: list[str] = Field(description="which of its tools are left out, and why")
    last_change: ListChangeOut | None = Field(description="null: the list has not changed since the process began")


class ReplicaOut(Shape):
    """The replica for reads that may be late, at its last use by one process."""

    place: str = Field(description="host and port of each of its servers")
    state: str = Field(
        description="`answers`, `unused` so far, or why the primary answers: away, late, schema, foreign"
    )
    as_of: Time | None = Field(description="time to which the data of its last answer was complete; null: not known")
    is_refused: bool = Field(description="the primary answers in its place")


class ServiceStatusOut(Shape):
    """The state of the whole service: its processes, waiting work, and work in progress."""

    database: str = Field(description="where the database is, without role and password")
    schema_revision: str = Field(alias="schema")
    is_stuck: bool = Field(description="turns wait, or were left by a dead process, and no process takes turns")
    processes: list[ProcessOut]
    queued: QueueOut = Field(description="waiting turns")
    held: list[HeldRunsOut] = Field(description="running turns, expired leases first")
    jobs: list[WorkOut] = Field(description="side jobs")
    slack: WorkOut | None = Field(description="deliveries to Slack; null without it")
    breakers: list[ModelBreakerOut] | None = Field(
        None, description="of the process that answers; null if the status was read from the database alone"
    )
    agent_files: AgentFilesOut | None = Field(
        None, description="of the process that answers; null if the status was read from the database alone"
    )
    tool_servers: list[ToolServerOut] | None = Field(
        None, description="of the process that answers; null if the status was read from the database alone"
    )
    replica: ReplicaOut | None = Field(None, description="of DATABASE_READ_URL; null without one")

    @property
    def claiming_processes(self) -> int:
        """The number of processes that can take turns."""
        return sum(noted.takes_turns for noted in self.processes)

    @property
    def unclaimed_turns(self) -> int:
        """The number of turns that no process works on."""
        return self.queued.waiting + sum(held.expired for held in self.held)


def status_json(status: ServiceStatus) -> JsonDict:
    """Return the state of the service in the shape of ServiceStatusOut."""
    return {
        "database": status.database,
        "schema": status.schema,
        "is_stuck": status.is_stuck,
        "processes": [_process_json(noted) for noted in status.processes],
        "queued": _queue_json(status.queued),
        "held": [HeldRunsOut.render(held) for held in status.held],
        "jobs": [_work_json(work) for work in status.jobs],
        "slack": None if status.slack is None else _work_json(status.slack),
        "breakers": None if status.breakers is None else [ModelBreakerOut.render(each) for each in status.breakers],
        "agent_files": None if status.agent_files is None else AgentFilesOut.render(status.agent_files),
        "tool_servers": None if status.tool_servers is None else [*map(ToolServerOut.render, status.tool_servers)],
        "replica": None if status.replica is None else ReplicaOut.render(status.replica),
    }


def _queue_json(line: QueueState) -> JsonDict:
    return {"waiting": line.waiting, "oldest_seconds": line.oldest_seconds}


def _work_json(work: WorkQueue) -> JsonDict:
    counts: JsonDict = {"retrying": work.retrying, "in_hand": work.in_hand, "failed": work.failed}
    return {"kind": work.kind, **_queue_json(work.line), **counts}


def _process_json(noted: ProcessReport) -> JsonDict:
    process, state = noted.process, noted.state
    return {
        "id": str(process.id),
        "kind": process.kind.value,
        "name": process.name,
        "version": process.version,
        "started_at": noted.started_at.isoformat(),
        "heartbeat_at": noted.heartbeat_at.isoformat(),
        "up_seconds": noted.up_seconds,
        "since_heartbeat_seconds": noted.since_heartbeat_seconds,
        "is_silent": noted.is_silent,
        "takes_turns": noted.takes_turns,
        "concurrency": state.concurrency,
        "open_turns": state.open_turns,
        "jobs_in_hand": state.jobs_in_hand,
        "is_listening": state.is_listening,
    }


class FieldProblem(Shape):
    """One wrong value in a request."""

    field: str
    detail: str


class ProblemKindOut(Shape):
    """What all problems with the same `type` share: the cause, and what to do about it."""

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    cause: str
    remedy: str
    page: str | None = Field(description="the page of the manual that says more, below the project's folder; or null")


class Problem(Shape):
    """Problem document of RFC 9457: what is wrong and what to do. `type` is stable."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list, description="for /problems/invalid_input")
    run_id: Id | None = Field(None, description="the run that the problem is about, if any")
    provider_message: str | None = Field(
        None, description="what the model's provider itself said, for keys with the scope `operate`"
    )
