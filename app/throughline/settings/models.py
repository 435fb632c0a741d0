"""Settings of models and agents."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from throughline.agents.context_schema import check_base_url, check_variable, policy_field
from throughline.context.policy import ContextPolicy

HOUR, DAY = 3_600, 86_400
"""Upper bounds of settings in seconds. A longer wait is a mistake, and clocks and intervals may overflow."""


class SettingsSection(BaseModel):
    """Base class of the sections, each with one subject, in the reference's order. Only the joining class is validated.

    `description` says all that an operator has to know of a setting: `.env.example` and the reference are made from it.
    `examples` has a sample value where the default is none.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)


def _unless_empty(check: Callable[[str], str]) -> AfterValidator:
    return AfterValidator(lambda value: check(value) if value else value)


Address: TypeAlias = Annotated[str, _unless_empty(check_base_url)]
"""The address of a server, '' for an unset one."""

VariableName: TypeAlias = Annotated[str, _unless_empty(check_variable)]
"""The name of an environment variable, '' for an unset one."""


class ModelSettings(SettingsSection):
    """Models: those that answer and those that write summaries."""

    default_llm: str = Field(
        "offline",
        description="Model of agents that name no model: a name for init_chat_model, such as openai:gpt-4o. `offline` "
        "needs no key.",
    )
    default_llm_base_url: Address = Field(
        "", description="An OpenAI-compatible server for DEFAULT_LLM, such as http://127.0.0.1:8080/v1."
    )
    default_llm_api_key_env: VariableName = Field(
        "",
        description="Name of the variable with the key for DEFAULT_LLM_BASE_URL; empty: a server that is not the "
        "provider's own gets no key, or `no-key-needed` in its place if the provider's package demands one.",
    )
    context_summary_model: str = Field("", description="Model that writes summaries; empty: DEFAULT_LLM.")
    context_summary_model_base_url: Address = Field(
        "",
        description="Server of CONTEXT_SUMMARY_MODEL; empty: DEFAULT_LLM_BASE_URL if both have the same provider, else "
        "the provider's own.",
    )
    context_summary_model_api_key_env: VariableName = Field(
        "", description="Name of the variable with the key for CONTEXT_SUMMARY_MODEL_BASE_URL."
    )
    context_usage_threshold: float = policy_field(
        ContextPolicy,
        "usage_threshold",
        description="Fraction of the window above which a conversation is compacted.",
    )
    prices_file: Path | None = Field(
        None,
        examples=["/etc/throughline/prices.yaml"],
        description="A YAML file with prices of models: by name, US dollars per million tokens. They win over the "
        "price list of the package genai-prices. A model in neither has no known cost.",
    )
    turn_timeout_seconds: float = Field(300.0, gt=0, le=DAY, description="One deadline for all model calls of a turn.")
    model_idle_timeout_seconds: float = Field(60.0, gt=0, le=DAY, description="How long a model may send nothing.")

    @model_validator(mode="after")
    def _check_summary_address_has_a_model(self) -> Self:
        if self.context_summary_model_base_url and not self.context_summary_model:
            raise ValueError("CONTEXT_SUMMARY_MODEL_BASE_URL needs CONTEXT_SUMMARY_MODEL, the model at that address")
        return self


class EmbeddingSettings(SettingsSection):
    """Search by meaning: the embedding model, and what is embedded."""

    embedding_model: str = Field(
        "",
        description="Embedding model for memories and messages: a name for init_embeddings, such as "
        "openai:text-embedding-3-small. PostgreSQL then needs pgvector, which the embedded server has. Empty: both are "
        "found by their words only.",
    )
    embedding_base_url: Address = Field(
        "", description="An OpenAI-compatible server for EMBEDDING_MODEL, such as http://127.0.0.1:8080/v1."
    )
    embedding_api_key_env: VariableName = Field(
        "", description="Name of the variable with the key for EMBEDDING_BASE_URL."
    )
    embedding_dimensions: int | None = Field(
        None,
        ge=1,
        le=16_000,
        description="Length of the vectors, for models that accept one; empty: the model's default.",
    )
    embedding_history: bool = Field(
        default=True,
        description="Send messages to EMBEDDING_MODEL too, so that they are found by meaning; false: only memories.",
    )
    embedding_calls_per_minute: int = Field(
        60, ge=1, le=100_000, description="Requests to EMBEDDING_MODEL a minute, of up to 64 messages each."
    )

    @model_validator(mode="after")
    def _check_embedding_address_has_a_model(self) -> Self:
        if not self.embedding_model and (self.embedding_base_url or self.embedding_dimensions):
            raise ValueError("EMBEDDING_BASE_URL and EMBEDDING_DIMENSIONS need EMBEDDING_MODEL")
        return self


class AgentSettings(SettingsSection):
    """Agents and their tools."""

    agents_dir: Path | None = Field(
        None,
        examples=["/etc/throughline/agents"],
        description="A folder of agent files that add to the shipped agents or override them by name.",
    )
    agents_reload: bool = Field(
        default=True,
        description="Read agent files again when they change, without a restart; false: only at start.",
    )
    tool_timeout_seconds: float = Field(30.0, gt=0, le=DAY, description="Time limit of a tool call.")
