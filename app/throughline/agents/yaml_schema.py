"""Schema of an agent file. Defaults and ranges come from the dataclasses that it is turned into (`policy_field`).

A field that is missing or empty takes its default. Validation is strict: no value is converted to another type.
"""

import json
import re
from typing import Annotated, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationInfo, field_validator, model_validator

from throughline.agents.context_schema import Address, ContextSection, Line, Section, Text, Variable, policy_field
from throughline.agents.definition import AgentDefinition, DailyBudget, ReasoningUse, RecallReach
from throughline.context.policy import ContextPolicy
from throughline.domain.prompt import ModelParameters, OverrideField
from throughline.domain.tool_server import ClientCredentials, ToolServer

MOST_HEADERS = 20
MOST_BODY_BYTES = 20_000
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
HEADER_VALUE = re.compile(r"[ -~]{1,1000}")
OUR_HEADERS = frozenset({
    *("accept", "api-key", "authorization", "connection", "content-length", "content-type", "host"),
    *("transfer-encoding", "x-api-key"),
})
"""Headers that an agent file may not set, because the service or the provider's package sets them.

A key belongs into the environment variable that `api_key_env` names.
"""

OUR_MEMBERS = frozenset({
    *("function_call", "functions", "input", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages"),
    *("model", "n", "stream", "stream_options", "system", "tool_choice", "tools"),
})
"""Members of the request's JSON body that an agent file may not set, because the service sets them."""


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"has the name {name[:40]!r}, which is no name of an HTTP header")
        if name.lower() in OUR_HEADERS:
            raise ValueError(f"has {name}, which the service sets itself; a key's variable is named by api_key_env")
        if not HEADER_VALUE.fullmatch(value):
            raise ValueError(
                f"has a value for {name} with other characters than printable ASCII, or over 1,000 of them"
            )
    if len(headers) > MOST_HEADERS:
        raise ValueError(f"has {len(headers)} headers; at most {MOST_HEADERS} are allowed")
    return headers


def _check_body(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if taken := sorted(OUR_MEMBERS & body.keys()):
        raise ValueError(f"has {', '.join(taken)}, which the service sets itself")
    if fields := sorted(ParametersSection.model_fields.keys() & body.keys()):
        raise ValueError(f"has {', '.join(fields)}: write it beside `body`, as parameters.{fields[0]}")
    try:
        size = len(json.dumps(body, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise ValueError("has a value that JSON does not know, such as a date; put it in quotes") from error
    if size > MOST_BODY_BYTES:
        raise ValueError(f"has {size} bytes as JSON; at most {MOST_BODY_BYTES} are allowed")
    return body


class ParametersSection(Section):
    """`parameters`: values sent with each model call. What is not written is not sent: the provider's default holds."""

    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description="How much chance there is in the answer."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, allow_inf_nan=False, description="Share of the likeliest tokens that are chosen from."
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Start of the random choices, so that answers may be repeated."
    )
    stop: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        default_factory=list, max_length=4, description="Texts at which the answer ends."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="How long the model thinks; which of the words it takes, the model decides."
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Whether a step may call several tools; sent only with tools."
    )
    include_thoughts: bool | None = Field(None, description="Whether Gemini sends its thoughts as text.")
    return_reasoning: bool | None = Field(
        None, description="Whether the steps of a run go back with their `reasoning_content`."
    )
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(
        default_factory=dict,
        description=f"Up to {MOST_HEADERS} further HTTP headers, such as `{{X-Team: search}}`; keys belong in "
        "`api_key_env`.",
    )
    body: Annotated[dict[str, JsonValue], AfterValidator(_check_body)] = Field(
        default_factory=dict,
        description="Further members of the request, such as `{top_k: 20}` or vLLM's `chat_template_kwargs`.",
    )

    def read(self) -> ModelParameters:
        """Return the parameters as the rest of the service uses them."""
        return ModelParameters(**{**self.model_dump(), "stop": tuple(self.stop)})


NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,63}\z"
TOOL_NAME = r"^[A-Za-z0-9_-]{1,64}\z"
TOOL_PATTERN = r"^([A-Za-z0-9_-]{1,64}|[A-Za-z_][\w.]*:[A-Za-z_]\w{0,63})\z"
GRAPH_PATTERN = r"^([A-Za-z_][\w.]*:[A-Za-z_]\w{0,63})?\z"


def _distinct(what: str) -> AfterValidator:
    def check(names: list[str]) -> list[str]:
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"names {', '.join(repeated)} more than once: name each {what} once")
        return names

    return AfterValidator(check)


class OtherModelSection(Section):
    """One of `fallback_models` or `override_models`: a model's name, or this mapping."""

    model: Line
    base_url: Address | None = None
    api_key_env: Variable | None = None
    window: int | None = policy_field(ContextPolicy, "window")
    parameters: ParametersSection = ParametersSection()

    @model_validator(mode="before")
    @classmethod
    def _read_name(cls, given: object) -> object:
        return {"model": given} if isinstance(given, str) else given


MOST_SERVERS = 20
MOST_ARGUMENTS, MOST_ARGUMENT_CHARACTERS = 100, 4_000
MOST_PATTERNS = 100
SERVER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
SCOPE = re.compile(r"[!#-\[\]-~]{1,200}")
"""A scope of OAuth (RFC 6749, section 3.3)."""

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
OUR_SERVER_HEADERS = frozenset({
    *("accept", "connection", "content-length", "content-type", "host", "last-event-id", "transfer-encoding"),
    *("mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id"),
})
"""Headers of requests to MCP servers that an agent file may not set, because the protocol sets them."""


def _check_argument(argument: str) -> str:
    if "\0" in argument:
        raise ValueError("has a NUL character, which no argument of a program can have")
    return argument


def _check_pattern(pattern: str) -> str:
    if any(map(str.isspace, pattern)):
        raise ValueError("has white space, which the name of no tool has")
    return pattern


Argument = Annotated[str, Field(min_length=1, max_length=MOST_ARGUMENT_CHARACTERS), AfterValidator(_check_argument)]
Pattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_pattern)]


def _check_variable_names(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not VARIABLE_NAME.fullmatch(name):
            raise ValueError(f"has the name {name[:40]!r}, which is no name of an environment variable")
    return variables


def _check_server_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"has the name {name[:40]!r}, which is no name of an HTTP header")
        if name.lower() in OUR_SERVER_HEADERS:
            raise ValueError(f"has {name}, which the protocol sets itself: remove it")
    return headers


def _check_scope(scope: str) -> str:
    if not SCOPE.fullmatch(scope):
        raise ValueError("has characters that no scope may have, such as spaces: write each scope by itself")
    return scope


class OAuthSection(Section):
    """`oauth` of a server: tokens are requested from `token_url` by client credentials."""

    token_url: Address = Field(description="The address at which a token is asked for.")
    client_id: Variable = Field(description="Name of the variable with the client's id.")
    client_secret: Variable = Field(description="Name of the variable with the client's secret.")
    scopes: list[Annotated[str, Field(max_length=200), AfterValidator(_check_scope)]] = Field(
        default_factory=list, max_length=MOST_PATTERNS, description="Scopes that are asked for."
    )
    resource: Annotated[Text, Field(max_length=2_000)] | None = Field(
        None, description="What the token is for, as the token's server knows it; `''` sends nothing. Default: `url`."
    )

    def read(self, url: str) -> ClientCredentials:
        """Return the section as the rest of the service uses it, for the server at `url`."""
        return ClientCredentials(
            self.token_url,
            self.client_id,
            self.client_secret,
            tuple(self.scopes),
            url if self.resource is None else self.resource,
        )


class ServerSection(Section):
    """One of `mcp_servers`: a server of tools, a program to start or an address."""

    command: list[Argument] = Field(
        default_factory=list,
        max_length=MOST_ARGUMENTS,
        description="The program to start and its arguments, such as `[npx, -y, some-server]`; it speaks by its "
        "standard input and output.",
    )
    url: Address | None = Field(None, description="The address of a server over HTTP, in place of `command`.")
    env: Annotated[dict[str, Variable], AfterValidator(_check_variable_names)] = Field(
        default_factory=dict,
        max_length=MOST_HEADERS,
        description="Environment variables of the program, each with the name of the service's variable that has its "
        "value: `{GITHUB_TOKEN: GITHUB_TOKEN}`. It gets no others but PATH.",
    )
    headers: Annotated[dict[str, Variable], AfterValidator(_check_server_headers)] = Field(
        default_factory=dict,
        max_length=MOST_HEADERS,
        description="HTTP headers for `url`, each with the name of the variable that has its value: "
        "`{Authorization: MY_SERVER_AUTHORIZATION}`.",
    )
    oauth: OAuthSection | None = Field(
        None, description="How to request tokens for `url` by OAuth 2.0 client credentials, in place of a header."
    )
    tools: list[Pattern] = Field(
        default_factory=lambda: ["*"],
        max_length=MOST_PATTERNS,
        description="Patterns of the names of the tools that the agent gets, such as `get_*`.",
    )
    needs_approval: list[Pattern] = Field(
        default_factory=list,
        max_length=MOST_PATTERNS,
        description="Patterns of the names of tools whose calls wait until a person approves them; `['*']` for all.",
    )
    timeout_seconds: float = policy_field(
        ToolServer, "timeout_seconds", gt=0, le=600, description="How long a call may take."
    )
    images: bool = Field(
        default=False,
        description="Give the model the images of results, at most four of a result. Only for models that take images: "
        "others would refuse the conversation.",
    )

    @model_validator(mode="after")
    def _check_one_way(self) -> "ServerSection":
        if bool(self.command) is (self.url is not None):
            raise ValueError("needs either command or url")
        if self.env and self.url is not None:
            raise ValueError("has env, which only a program (command) can have: remove it, or use headers")
        if self.headers and self.command:
            raise ValueError("has headers, which only a server over HTTP (url) can have: remove them, or use env")
        if self.oauth is not None and self.command:
            raise ValueError("has oauth, which only a server over HTTP (url) can have: remove it, or use env")
        if self.oauth is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("has oauth and a header Authorization, of which only one can be sent: remove one")
        return self

    def read(self, name: str) -> ToolServer:
        """Return the server as the rest of the service uses it."""
        return ToolServer(
            name=name,
            command=tuple(self.command),
            url=self.url or "",
            variables=tuple(sorted(self.env.items())),
            headers=tuple(sorted(self.headers.items())),
            oauth=None if self.oauth is None else self.oauth.read(self.url or ""),
            tools=tuple(self.tools),
            needs_approval=tuple(self.needs_approval),
            timeout_seconds=self.timeout_seconds,
            images=self.images,
        )


def _check_server_names(servers: dict[str, ServerSection]) -> dict[str, ServerSection]:
    for name in servers:
        if not SERVER_NAME.fullmatch(name):
            raise ValueError(f"has the name {name[:40]!r}; a name matches {SERVER_NAME.pattern}")
    return servers


class BudgetSection(Section):
    """`daily_budget`: what each user may spend on the agent in a day of UTC."""

    usd: float | None = policy_field(
        DailyBudget,
        "usd",
        description="US dollars that each user may spend on the agent in a day of UTC, summaries included; needs a "
        "model with a known price.",
    )
    tokens: int | None = policy_field(
        DailyBudget, "tokens", description="The same in tokens, those read and written together."
    )


class AgentFile(Section):
    """A whole agent file."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = Field(description="The name that sessions are opened with.")
    description: Text = Field("", description="What the agent is for, as lists of agents show it.")
    model: Line | None = Field(
        None, description="A name for init_chat_model, or `offline`; empty: the setting `DEFAULT_LLM`."
    )
    base_url: Address | None = Field(
        None, description="An OpenAI-compatible server, such as `http://127.0.0.1:8080/v1`."
    )
    api_key_env: Variable | None = Field(
        None, description="Name of the variable with the key for `base_url`, or for the provider of `model`."
    )
    system_prompt: Text = Field("", description="What the model reads before every conversation.")
    tools: Annotated[list[Annotated[str, Field(pattern=TOOL_PATTERN)]], _distinct("tool")] = Field(
        default_factory=list, description="Names of built-in tools, or your functions as `module:attribute`."
    )
    needs_approval: Annotated[list[Annotated[str, Field(pattern=TOOL_NAME)]], _distinct("tool")] = Field(
        default_factory=list,
        description="Names of the agent's tools whose calls wait until a person approves them.",
    )
    mcp_servers: Annotated[dict[str, ServerSection], AfterValidator(_check_server_names)] = Field(
        default_factory=dict,
        max_length=MOST_SERVERS,
        description="Servers of tools (Model Context Protocol) by name; the model knows their tools as `name__tool`.",
    )
    client_tools: bool = policy_field(
        AgentDefinition, "client_tools", description="Whether requests may bring tools that their clients run."
    )
    max_client_rounds: int = policy_field(
        AgentDefinition,
        "max_client_rounds",
        description="Steps of a turn that may call only tools of the client. Then the model is called once without "
        "tools.",
    )
    wait_seconds: float = policy_field(
        AgentDefinition,
        "wait_seconds",
        description="How long a turn waits for an approval, an answer, or the result of a client's tool.",
    )
    recall: RecallReach = policy_field(
        AgentDefinition,
        "recall",
        description="What the recall tools search: the session, or all sessions of the user (never in shared "
        "sessions).",
    )
    graph: Annotated[str, Field(pattern=GRAPH_PATTERN)] = Field(
        "",
        description="Your LangGraph graph as `module:attribute`: it answers instead of one model with tools. See the "
        "guide on graphs.",
    )
    max_tool_rounds: int = policy_field(
        AgentDefinition,
        "max_tool_rounds",
        description="Steps of a turn that may call tools. Then the model is called once without tools, so that there "
        "is an answer.",
    )
    reasoning: ReasoningUse = policy_field(
        AgentDefinition,
        "reasoning",
        description="What becomes of what models write before an answer. `show`: users see it; `store`: it is stored "
        "for operators alone; `drop`: it is not stored.",
    )
    parameters: ParametersSection = ParametersSection()
    fallback_models: list[OtherModelSection] = Field(
        default_factory=list,
        max_length=5,
        description="Models that answer while those before them are unavailable: names, or mappings.",
    )
    fallback_after_seconds: float = policy_field(
        AgentDefinition,
        "fallback_after_seconds",
        description="How long a model may take to begin its answer before the next fallback model is called.",
    )
    overrides: Annotated[list[Annotated[OverrideField, Field(strict=False)]], _distinct("field")] = Field(
        default_factory=list, description="What a request may change for its turn."
    )
    strict_overrides: bool = policy_field(
        AgentDefinition,
        "strict_overrides",
        description="Whether what `overrides` does not name is also refused in OpenAI's interface. If not, a client's "
        "system message is a preference below the system prompt, and its temperature is not applied.",
    )
    override_models: list[OtherModelSection] = Field(
        default_factory=list,
        max_length=20,
        validate_default=True,
        description="Models that a request may name, written as fallback models; needs `model` in `overrides`.",
    )
    daily_budget: BudgetSection = BudgetSection()
    context: ContextSection = ContextSection()

    @field_validator("override_models")
    @classmethod
    def _check_models_can_be_named(
        cls, value: list[OtherModelSection], info: ValidationInfo
    ) -> list[OtherModelSection]:
        allowed, names = info.data.get("overrides"), [section.model for section in value]
        if allowed is not None and (OverrideField.MODEL in allowed) is not bool(value):
            raise ValueError(
                "needs `model` in `overrides`" if value else "must name the models, because `overrides` has model"
            )
        if len(set(names)) < len(names):
            raise ValueError("names a model more than once: name each model once")
        return value

    @field_validator("graph")
    @classmethod
    def _check_graph_alone(cls, value: str, info: ValidationInfo) -> str:
        taken = [field for field in ("needs_approval", "mcp_servers") if info.data.get(field)]
        if value and taken:
            raise ValueError(f"cannot be used with {' and '.join(taken)}: the graph calls its own tools")
        if value and info.data.get("recall") is RecallReach.USER:
            raise ValueError("cannot be used with recall: user; its recall tools read the session")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _check_key_has_a_receiver(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("model", "") is None and info.data.get("base_url", "") is None:
            raise ValueError("needs base_url or model: the server or the provider that the key is for")
        return value


def section_at(path: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the class of the innermost section on `path`: the whole file's if `path` is empty.

    `path` is a location in a pydantic error without its last field.
    """
    section: type[BaseModel] = AgentFile
    is_key = False
    for step in path:
        if isinstance(step, int) or is_key:  # an item of the list, or a key of the mapping, that the step before names
            is_key = False
            continue
        info = section.model_fields.get(step)
        if info is None or (inner := _section_of(info.annotation)) is None:
            break
        section, is_key = inner, get_origin(info.annotation) is dict
    return section


def _section_of(annotation: object) -> type[BaseModel] | None:
    """Return the section that a field holds, by itself or as items of a list; None if it holds none."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
