"""The common base of bodies in LangGraph's form, the body of a request for a run, and queries about runs."""

from contextlib import suppress
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, model_validator

from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.http.body import parse_json
from throughline.http.fields import STRICT, Metadata, QueryParameters
from throughline.wire.json_shape import JsonDict

StreamMode: TypeAlias = Literal["values", "updates", "messages", "messages-tuple", "custom"]


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _parse_json_list(given: object) -> object:
    """Return a list of values, also if they came as the text of one JSON list, as the client in JavaScript sends it."""
    match given:
        case [str() as text] if text.startswith("["):
            with suppress(ThroughlineError):
                return parse_json(text.encode())
    return given


Modes: TypeAlias = Annotated[list[StreamMode], Field(max_length=20), BeforeValidator(_as_list)]
Names: TypeAlias = Annotated[list[str], Field(max_length=20), BeforeValidator(_parse_json_list)]


class Body(BaseModel):
    """A body in LangGraph's form. `ignored` members have no effect, and `unserved` ones are refused unless empty.

    `field_prefix` precedes the names of its members in errors.
    """

    model_config = STRICT
    ignored: ClassVar[frozenset[str]] = frozenset()
    unserved: ClassVar[frozenset[str]] = frozenset()
    field_prefix: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _drop_unused(cls, given: object) -> object:
        """Return the members without the ignored and unserved ones. Raises InvalidInput for what is not served.

        That is not NotServed (501), because clients repeat a request after a status above 499.
        """
        if not isinstance(given, dict):
            return given
        for name, value in given.items():
            if name in cls.unserved and value not in (None, [], {}, 0, ""):
                field = cls.field_prefix + name
                detail = f"`{field}` is not served: this service has nothing like it. Leave it out."
                raise InvalidInput(detail, field=field)
        dropped = cls.ignored | cls.unserved
        return {name: value for name, value in given.items() if name not in dropped}


class Command(Body):
    """A command to a waiting run."""

    unserved = frozenset({"goto", "update", "graph"})
    field_prefix = "command."

    resume: JsonValue = None


class CreateRun(Body):
    """A run of an assistant: `input` brings messages, `command` resumes a waiting run.

    These have no effect: `context`, `stream_subgraphs`, `stream_resumable`, `feedback_keys`, `durability`,
    `checkpoint_during`, `strict_resume`, `langsmith_tracer`. These are not served: `interrupt_before`,
    `interrupt_after`, `webhook`, `after_seconds`.
    """

    ignored = frozenset((
        "context",
        "stream_subgraphs",
        "stream_resumable",
        "feedback_keys",
        "durability",
        "checkpoint_during",
        "strict_resume",
        "langsmith_tracer",
    ))
    unserved = frozenset({"interrupt_before", "interrupt_after", "webhook", "after_seconds"})

    assistant_id: str = Field(min_length=1, max_length=200, description="the name of an agent, or its UUID")
    input: JsonValue = Field(None, description="`{messages: […]}`, of which only what is new is taken")
    command: Command | None = None
    metadata: Metadata | None = Field(None, description="metadata of the user's message")
    config: dict[str, JsonValue] | None = Field(
        None, description="only `configurable.thread_id` and `.checkpoint_id` are read"
    )
    stream_mode: Modes | None = Field(None, description="what is streamed; default: values")
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
    checkpoint: dict[str, JsonValue] | None = Field(None, description="only the thread's newest is served")
    checkpoint_id: str | None = Field(None, description="only the thread's newest is served")

    @property
    def configured(self) -> JsonDict:
        """The member `configurable` of the configuration."""
        found = (self.config or {}).get("configurable")
        return found if isinstance(found, dict) else {}


class ListThreadRuns(QueryParameters):
    """A page of a thread's runs, the last submitted first."""

    limit: int = Field(10, ge=1, le=200)
    offset: int = Field(0, ge=0, le=1_000)
    status: Literal["pending", "running", "error", "success", "timeout", "interrupted"] | None = None
    select: Names | None = None


class JoinStream(QueryParameters):
    """The forms of a stream that is joined, and whether the run ends with it."""

    stream_mode: Annotated[list[StreamMode], BeforeValidator(_parse_json_list)] | None = None
    cancel_on_disconnect: bool = False


class CancelRun(QueryParameters):
    """How a run is cancelled: with `wait` the answer comes once it has ended. Its messages stay."""

    wait: bool = False
    action: Literal["interrupt"] = "interrupt"
