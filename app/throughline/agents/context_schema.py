"""Schema of the section `context` of an agent file, and the kinds of text that all sections share."""

import re
from dataclasses import asdict, fields
from enum import Enum
from typing import Annotated, Any, Self, get_type_hints
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from throughline.context.policy import (
    MAX_INSTRUCTIONS,
    Adopt,
    ContextPolicy,
    ImportanceWeights,
    PrunePolicy,
    Range,
    Recall,
    Strategy,
    SummaryKind,
    SummaryPolicy,
    SummaryShape,
)
from throughline.domain.message import clean_text

_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_WANTED = "must be an address such as http://127.0.0.1:8080/v1"


def check_base_url(address: str) -> str:
    """Return `address`. Raises ValueError unless it is an http(s) address with a host and without white space."""
    if _SPACE_OR_CONTROL.search(address):
        raise ValueError(f"{_WANTED}, without white space")
    try:
        parts = urlsplit(address)
        is_complete = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # brackets that do not close, or a port that is no number
        raise ValueError(_WANTED) from error
    if not is_complete:
        raise ValueError(_WANTED)
    return address


def check_variable(name: str) -> str:
    """Return `name`. Raises ValueError unless it can be the name of an environment variable.

    A key that was written here by mistake usually fails this check.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            "must be the name of the environment variable that holds the key, in capitals (such as GATEWAY_API_KEY), "
            "never the key itself"
        )
    return name


def policy_field(owner: type, name: str, **further: Any) -> Any:  # noqa: ANN401  # as pydantic's Field, typed like it
    """Return the pydantic field for `owner.name`: the default and the range of that dataclass field.

    A float must be finite, and an enum is written as its value. `further` adds or replaces arguments of the pydantic
    field. Raises KeyError if `owner` has no field of that name.
    """
    hint = get_type_hints(owner, include_extras=True)[name]
    default: dict[str, Any] = {declared.name: declared.default for declared in fields(owner)}  # Any: each has its own
    return Field(**({"default": default[name]} | _constraints(hint) | further))


def _constraints(hint: object) -> dict[str, Any]:  # Any: as Field takes them
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"strict": False}
    is_float = getattr(hint, "__origin__", hint) is float
    bounds = [asdict(beside) for beside in getattr(hint, "__metadata__", ()) if isinstance(beside, Range)]
    return {"allow_inf_nan": False} | _given(*bounds) if is_float else _given(*bounds)


def _given(*bounds: dict[str, float | None]) -> dict[str, Any]:  # Any: as Field takes them
    return {end: bound for ends in bounds for end, bound in ends.items() if bound is not None}


class Section(BaseModel):
    """Base class of the mappings in an agent file. Unknown fields are refused; empty fields count as missing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in field_names(cls)}


def field_names(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the names under which a section's fields may be written, aliases included."""
    names: list[str] = []
    for name, info in section.model_fields.items():
        alias = info.validation_alias
        names += [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
    return tuple(names)


COUNTER_PATTERN = r"^(tiktoken(:[\w.-]+)?|chars|transformers:\S(.*\S)?|[A-Za-z_][\w.]*:[A-Za-z_][\w./-]*)\z"
HOOK_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w{0,63}\z"

STRATEGY_OF = {
    "min_score_threshold": Strategy.IMPORTANCE,
    "importance": Strategy.IMPORTANCE,
    "summarize_chunk_size": Strategy.SUMMARIZATION,
    "max_summary_tokens": Strategy.SUMMARIZATION,
    "max_messages_before_summary": Strategy.SUMMARIZATION,
    "max_tokens_before_summary": Strategy.SUMMARIZATION,
    "adopt": Strategy.SUMMARIZATION,
}
"""Options that only one strategy has.

`summary` is not among them, because a session of any agent may be summarized on demand.
"""

SPARE_MESSAGES = 4
"""Least difference between `max_messages_before_summary` and `min_recent_messages` with `adopt: immediately`.

The messages in between are summarized each time. With fewer of them, nearly every turn would wait for a summary.
Chosen: two exchanges.
"""

Text = Annotated[str, AfterValidator(clean_text)]
Line = Annotated[str, StringConstraints(pattern=r"^\S+\z", max_length=200)]
Address = Annotated[str, Field(max_length=2000), AfterValidator(check_base_url)]
Variable = Annotated[str, AfterValidator(check_variable)]


class PruneSection(Section):
    """`context.prune`: thresholds as fractions of the window, and how many tool outputs stay whole."""

    start: float = policy_field(PrunePolicy, "start")
    aggressive: float = policy_field(PrunePolicy, "aggressive")
    critical: float = policy_field(PrunePolicy, "critical")
    keep_last: int = policy_field(PrunePolicy, "keep_last")
    keep_last_aggressive: int = policy_field(PrunePolicy, "keep_last_aggressive")
    min_freed: float = policy_field(PrunePolicy, "min_freed")
    max_output_bytes: int = policy_field(PrunePolicy, "max_output_bytes")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.start < self.aggressive < self.critical:
            marks = f"start {self.start}, aggressive {self.aggressive}, critical {self.critical}"
            raise ValueError(f"has {marks}: each must be above the one before it")
        if self.keep_last_aggressive > self.keep_last:
            kept = f"keep_last_aggressive {self.keep_last_aggressive} above keep_last {self.keep_last}"
            raise ValueError(f"has {kept}: keep_last_aggressive must be at most keep_last")
        return self


class SummarySection(Section):
    """`context.summary`: how summaries are written."""

    model: Line | None = Field(
        None, description="The model that writes summaries; empty: `CONTEXT_SUMMARY_MODEL`, else `DEFAULT_LLM`."
    )
    base_url: Address | None = Field(None, description="The server of `model`; empty: the agent's server.")
    api_key_env: Variable | None = Field(None, description="Name of the variable with the key for `base_url`.")
    kind: SummaryKind = policy_field(SummaryPolicy, "kind")
    shape: SummaryShape = policy_field(SummaryPolicy, "shape")
    style: Text = policy_field(SummaryPolicy, "style", max_length=MAX_INSTRUCTIONS)
    max_tokens: int | None = policy_field(
        SummaryPolicy,
        "max_tokens",
        description="Most tokens of a summary; empty: 6 % of the window, between 1,500 and 8,000.",
    )
    instructions: Text = policy_field(SummaryPolicy, "instructions", max_length=MAX_INSTRUCTIONS)
    timeout_seconds: float = policy_field(SummaryPolicy, "timeout_seconds")

    @field_validator("base_url")
    @classmethod
    def _check_it_has_a_model(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("model", "") is None:
            raise ValueError("needs summary.model, the model on that server")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _check_key_has_an_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        return check_key_has_an_address(value, info)


class ImportanceSection(Section):
    """`context.importance`: the weights of messages for the strategy `importance`."""

    user: float = policy_field(ImportanceWeights, "user")
    tool_use: float = policy_field(ImportanceWeights, "tool_use")
    referenced: float = policy_field(ImportanceWeights, "referenced")
    long_answer: float = policy_field(ImportanceWeights, "long_answer")
    short_answer: float = policy_field(ImportanceWeights, "short_answer")
    acknowledgement: float = policy_field(ImportanceWeights, "acknowledgement")


class ContextSection(Section):
    """`context`: the agent's context policy.

    - `usage_threshold`: if missing, the setting `context_usage_threshold`.
    - `keep_recent`: if missing, 20 for the strategy `truncation`, and `min_recent_messages` for the others.
    - `summarize_chunk_size` and `max_summary_tokens` become `chunk_messages` and `max_tokens` of the summary policy.

    The options of single strategies are declared after the fields that their validation needs.
    """

    strategy: Strategy = policy_field(ContextPolicy, "strategy")
    auto_summarize: bool = policy_field(ContextPolicy, "auto_summarize")
    usage_threshold: float | None = policy_field(
        ContextPolicy,
        "usage_threshold",
        default=None,
        description="Share of the window above which a conversation is compacted; empty: `CONTEXT_USAGE_THRESHOLD`.",
    )
    target: float | None = policy_field(
        ContextPolicy,
        "target",
        default=None,
        description="Share of the window that a compaction aims at, below `usage_threshold`; empty: 0.5, or three "
        "quarters of a threshold that is no higher.",
    )
    target_tokens: int | None = policy_field(
        ContextPolicy, "target_tokens", description="The same in tokens; write one of the two."
    )
    max_messages_before_summary: int = policy_field(ContextPolicy, "max_messages_before_summary")
    max_tokens_before_summary: int = policy_field(ContextPolicy, "max_tokens_before_summary")
    adopt: Adopt = policy_field(ContextPolicy, "adopt")
    keep_recent: int | None = policy_field(
        ContextPolicy,
        "keep_recent",
        default=None,
        description="Number of newest messages that stay; empty: 20 with the strategy `truncation`. With another "
        "strategy it means `min_recent_messages`: write one of them.",
    )
    min_recent_messages: int = policy_field(ContextPolicy, "min_recent_messages", validate_default=True)
    response_reserve: int = policy_field(ContextPolicy, "response_reserve")
    window: int | None = policy_field(
        ContextPolicy,
        "window",
        validation_alias=AliasChoices("window", "max_context_tokens"),
        description="Tokens of the context window, also written `max_context_tokens`; empty: the model's own.",
    )
    prune: PruneSection = PruneSection()
    summary: SummarySection = SummarySection()
    recall: Recall = policy_field(ContextPolicy, "recall")
    memories: Recall = policy_field(ContextPolicy, "memories")
    token_counter: str = policy_field(ContextPolicy, "token_counter", pattern=COUNTER_PATTERN, max_length=200)
    pre_compact: str = policy_field(ContextPolicy, "pre_compact", pattern=HOOK_PATTERN, max_length=200)
    importance: ImportanceSection = ImportanceSection()
    min_score_threshold: float = policy_field(ContextPolicy, "min_score_threshold")
    summarize_chunk_size: int | None = policy_field(
        SummaryPolicy,
        "chunk_messages",
        description="Most messages that one summary segment covers; empty: as many as the summary model takes.",
    )
    max_summary_tokens: int | None = policy_field(
        SummaryPolicy, "max_tokens", default=None, description="Another name of `summary.max_tokens`."
    )

    @field_validator(*STRATEGY_OF)
    @classmethod
    def _check_strategy_has_it(cls, value: object, info: ValidationInfo) -> object:
        strategy, wanted = info.data.get("strategy"), STRATEGY_OF[str(info.field_name)]
        if strategy is not None and strategy is not wanted:
            raise ValueError(
                f"is an option of the strategy {wanted}, but this agent has the strategy {strategy}: remove it "
                f"or write `strategy: {wanted}`"
            )
        return value

    @field_validator("recall", "memories", mode="before")
    @classmethod
    def _read_off(cls, value: object) -> object:
        """Return `off` for False, as which YAML reads the bare word."""
        return Recall.OFF if value is False else value

    @field_validator("keep_recent", "min_recent_messages")
    @classmethod
    def _check_n_leaves_something_to_summarise(cls, value: int | None, info: ValidationInfo) -> int | None:
        n, name = info.data.get("max_messages_before_summary"), info.field_name
        if value is None or (name == "min_recent_messages" and info.data.get("keep_recent") is not None):
            return value
        least = value + SPARE_MESSAGES
        if info.data.get("adopt") is Adopt.IMMEDIATELY and isinstance(n, int) and n < least:
            raise ValueError(
                "leaves too few messages to summarize: with `adopt: immediately`, max_messages_before_summary "
                f"must be at least {least} ({name} plus {SPARE_MESSAGES}), not {n}"
            )
        return value

    @field_validator("target_tokens")
    @classmethod
    def _check_target_written_once(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("target") is not None:
            raise ValueError(
                "sets the target in tokens, but `target` sets it as a share of the window: write only one of them"
            )
        return value

    @model_validator(mode="after")
    def _check_recent_written_once(self) -> Self:
        is_both = {"keep_recent", "min_recent_messages"} <= self.model_fields_set
        if is_both and self.strategy is not Strategy.TRUNCATION:
            raise ValueError(
                f"has keep_recent {self.keep_recent} and min_recent_messages {self.min_recent_messages}, which "
                f"mean the same for the strategy {self.strategy}: write only one of them"
            )
        return self

    @field_validator("max_summary_tokens")
    @classmethod
    def _check_written_once(cls, value: int | None, info: ValidationInfo) -> int | None:
        summary = info.data.get("summary")
        if isinstance(summary, SummarySection) and "max_tokens" in summary.model_fields_set:
            raise ValueError("is another name of summary.max_tokens, which the file has too: write only one of them")
        return value


def check_key_has_an_address(value: str | None, info: ValidationInfo) -> str | None:
    """Return `value`, the name of a key's variable or None. Raises ValueError for a name without a `base_url`."""
    if value is not None and info.data.get("base_url", "") is None:
        raise ValueError("needs base_url, the address that the key is for")
    return value
