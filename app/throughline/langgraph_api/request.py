"""The body of a request for a run, in LangGraph's form, and what of it this service does not have."""

from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from throughline.domain.errors import ThroughlineError
from throughline.http.body import parse_json
from throughline.http.fields import STRICT, Metadata, QueryParameters
from throughline.langgraph_api.absent_routes import refuse
from throughline.wire.json_shape import JsonDict

StreamMode: TypeAlias = Literal["values", "updates", "messages", "messages-tuple", "custom"]
DEFAULT_MODES: tuple[StreamMode, ...] = ("values",)


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _without_json(given: object) -> object:
    """Return the values of a query parameter, also if they came as one JSON list, as from the client in JavaScript."""
    match given:
        case [str() as text] if text.startswith("["):
            with suppress(ThroughlineError):
                return parse_json(text.encode())
    return given


Modes: TypeAlias = Annotated[list[StreamMode], Field(max_length=20), BeforeValidator(_as_list)]
Names: TypeAlias = Annotated[list[str], Field(max_length=20), BeforeValidator(_without_json)]


class Command(BaseModel):
    """A command to a waiting run."""

    model_config = STRICT

    resume: JsonValue = None
    goto: JsonValue = Field(None, description="not served")
    update: JsonValue = Field(None, description="not served")
    graph: JsonValue = Field(None, description="not served")


class CreateRun(BaseModel):
    """A run of an assistant: `input` brings messages, `command` resumes a waiting run.

    These have no effect: `context`, `stream_subgraphs`, `stream_resumable`, `feedback_keys`, `durability`,
    `checkpoint_during`, `strict_resume`, `langsmith_tracer`.
    """

    model_config = STRICT

    assistant_id: str = Field(min_length=1, max_length=200, description="the name of an agent, or its UUID")
    input: JsonValue = Field(None, description="`{messages: […]}`, of which only what is new is taken")
    command: Command | None = None
    metadata: Metadata | None = Field(None, description="metadata of the user's message")
    config: dict[str, JsonValue] | None = Field(
        None, description="only `configurable.thread_id` and `.checkpoint_id` are read"
    )
    context: JsonValue = None
    stream_mode: Modes | None = Field(None, description="what is streamed; default: values")
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = None
    feedback_keys: list[str] | None = None
    multitask_strategy: Literal["reject", "enqueue", "interrupt"] | None = Field(
        None, description="what becomes of the thread's running turn; default: enqueue"
    )
    if_not_exists: Literal["reject", "create"] | None = Field(
        None, description="what becomes of a thread that does not exist; default: reject"
    )
    on_disconnect: Literal["cancel", "continue"] | None = Field(
        None, description="default: `continue`, and `cancel` without a thread"
    )
    on_completion: Literal["delete", "keep"] | None = Field(None, description="without a thread; default: delete")
    durability: str | None = None
    checkpoint_during: bool | None = None
    strict_resume: bool | None = None
    langsmith_tracer: JsonValue = None
    checkpoint: dict[str, JsonValue] | None = Field(None, description="only the thread's newest is served")
    checkpoint_id: str | None = Field(None, description="only the thread's newest is served")
    interrupt_before: JsonValue = Field(None, description="not served")
    interrupt_after: JsonValue = Field(None, description="not served")
    webhook: JsonValue = Field(None, description="not served")
    after_seconds: JsonValue = Field(None, description="not served")

    @property
    def modes(self) -> tuple[StreamMode, ...]:
        """The forms of the stream."""
        return tuple(self.stream_mode or DEFAULT_MODES)

    @property
    def configured(self) -> JsonDict:
        """The member `configurable` of the configuration."""
        found = (self.config or {}).get("configurable")
        return found if isinstance(found, dict) else {}

    @property
    def wanted_checkpoint(self) -> str | None:
        """The id of the checkpoint from which the run is to go on, None without one."""
        inner = (self.checkpoint or {}).get("checkpoint_id")
        found = self.checkpoint_id or inner or self.configured.get("checkpoint_id")
        return None if found is None else str(found)

    def check_served(self) -> None:
        """Raise InvalidInput for what this service does not have."""
        command = self.command or Command()
        refuse(
            webhook=self.webhook,
            after_seconds=self.after_seconds,
            interrupt_before=self.interrupt_before,
            interrupt_after=self.interrupt_after,
        )
        refuse(**{"command.goto": command.goto, "command.update": command.update, "command.graph": command.graph})


class ListThreadRuns(QueryParameters):
    """A page of a thread's runs, the last submitted first."""

    limit: int = Field(10, ge=1, le=200)
    offset: int = Field(0, ge=0, le=1_000)
    status: Literal["pending", "running", "error", "success", "timeout", "interrupted"] | None = None
    select: Names | None = None


class JoinStream(QueryParameters):
    """The forms of a stream that is joined, and whether the run ends with it."""

    stream_mode: Annotated[list[StreamMode], BeforeValidator(_without_json)] | None = None
    cancel_on_disconnect: bool = False


class CancelRun(QueryParameters):
    """How a run is cancelled: with `wait` the answer comes once it has ended. Its messages stay."""

    wait: bool = False
    action: Literal["interrupt"] = "interrupt"
