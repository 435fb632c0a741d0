"""All settings as one value, read from the environment or `.env`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from throughline.domain.errors import SettingInvalid
from throughline.settings.database import DatabaseSettings
from throughline.settings.http import HttpSettings
from throughline.settings.models import AgentSettings, EmbeddingSettings, ModelSettings
from throughline.settings.operation import LogSettings, RetentionSettings, TracingSettings
from throughline.settings.section import SettingsSection
from throughline.settings.slack import SlackSettings
from throughline.settings.turns import HistorySearchSettings, TurnSettings

ENV_FILE = ".env"
"""File of settings in the folder where a program is started."""

SHOWN_CHARACTERS = 40
VALUE_TEXTS: Mapping[str, str] = {
    "bool_parsing": "is neither true nor false",
    "finite_number": "is no finite number",
    "float_parsing": "is no number",
    "greater_than": "is too small: it must be above {gt}",
    "greater_than_equal": "is too small: it must be {ge} or more",
    "int_parsing": "is no whole number",
    "int_parsing_size": "is too large",
    "less_than": "is too large: it must be below {lt}",
    "less_than_equal": "is too large: it must be {le} or less",
    "string_pattern_mismatch": "does not match {pattern}",
}
"""Texts behind the value for pydantic's error types. Numbers, switches and names are never secrets."""

SECTIONS: Mapping[str, type[SettingsSection]] = {
    "PostgreSQL": DatabaseSettings,
    "HTTP": HttpSettings,
    "Models": ModelSettings,
    "Search by meaning": EmbeddingSettings,
    "Agents and tools": AgentSettings,
    "Turns": TurnSettings,
    "Slack": SlackSettings,
    "History search": HistorySearchSettings,
    "Retention": RetentionSettings,
    "Traces": TracingSettings,
    "Logs": LogSettings,
}
"""The sections by their subject, in the order of the reference."""


class Settings(
    LogSettings,
    TracingSettings,
    RetentionSettings,
    HistorySearchSettings,
    SlackSettings,
    TurnSettings,
    AgentSettings,
    EmbeddingSettings,
    ModelSettings,
    HttpSettings,
    DatabaseSettings,
    BaseSettings,
):
    """Settings of the service.

    Names are the environment variables in lower case. An empty variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_file=ENV_FILE,
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="after")
    def _check_key_has_an_address(self) -> Self:
        for name in ("default_llm", "context_summary_model", "embedding"):
            if getattr(self, f"{name}_api_key_env") and not getattr(self, f"{name}_base_url"):
                variable = name.upper()
                raise ValueError(f"{variable}_API_KEY_ENV needs {variable}_BASE_URL, the address that the key is for")
        return self


class ClientSettings(BaseSettings):
    """Settings of a program that uses the client: the location of the database, from the environment only."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    database_url: str = ""
    database_direct_url: str = ""


def read_settings(data_dir: Path | None = None) -> Settings:
    """Return the settings; `data_dir` from the command line wins. Raises SettingInvalid with each wrong setting."""
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = "; ".join(map(_problem, error.errors()))
        raise SettingInvalid(f"Some settings are invalid: {wrong}.") from None
    except SettingsError as error:
        raise SettingInvalid(f"The settings cannot be read: {error}.") from None
    return settings if data_dir is None else settings.model_copy(update={"data_dir": data_dir})


def _problem(found: ErrorDetails) -> str:
    """Return the setting's name and what is wrong with it: with its value and default if it can be no secret."""
    name = ".".join(map(str, found["loc"]))
    text = VALUE_TEXTS.get(found["type"])
    if text is None:
        return f"{name.upper()}: {found['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    value = repr(str(found["input"])[:SHOWN_CHARACTERS])
    field = Settings.model_fields.get(name)
    default = "" if field is None or field.default in {None, ""} else f"; the default is {field.default}"
    return f"{name.upper()}: {value} {text.format(**found.get('ctx', {}))}{default}"
