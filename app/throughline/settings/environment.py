"""The environment of this process and the file `.env`: the only module that reads or changes them."""

import os
from collections.abc import Mapping

from pydantic_settings import DotEnvSettingsSource

from throughline.domain.errors import SettingInvalid
from throughline.settings.all_settings import ENV_FILE, Settings

TRACING_PREFIXES = ("LANGCHAIN_", "LANGSMITH_", "OTEL_")
KEY_SUFFIX = "_API_KEY"


def read_variable(name: str) -> str:
    """Return a variable that is no setting, such as a provider's key, from the environment or `.env`; '' if not set."""
    if value := os.environ.get(name):
        return value
    return read_env_file().get(name) or ""


def read_env_file() -> Mapping[str, str | None]:
    """Return the variables in `.env` that are not empty. The value is None for a line without `=`.

    Raises SettingInvalid if the file cannot be read.
    """
    try:
        return DotEnvSettingsSource(Settings, env_file=ENV_FILE, case_sensitive=True).env_vars
    except UnicodeDecodeError:
        raise SettingInvalid(f"`{ENV_FILE}` is not UTF-8: save the file as UTF-8.") from None
    except OSError as error:
        raise SettingInvalid(f"`{ENV_FILE}` cannot be read: {error.strerror or type(error).__name__}.") from None


def read_environment() -> Mapping[str, str]:
    """Return a copy of this process's environment."""
    return dict(os.environ)


def add_to_environment(variables: Mapping[str, str]) -> None:
    """Put variables into this process's environment. Those that it has already are kept, except empty ones."""
    for name, value in variables.items():
        os.environ[name] = os.environ.get(name) or value


def remove_tracing_variables() -> tuple[str, ...]:
    """Remove the environment variables that make libraries trace, and return their names.

    If one of them is set for another program, LangChain would send each turn with the users' texts to a third party, or
    refuse every turn. FastAPI would export its requests. Keys are not removed, because they are those of model
    providers.
    """
    names = (name for name in os.environ if name.startswith(TRACING_PREFIXES) and not name.endswith(KEY_SUFFIX))
    found = tuple(sorted(names))
    for name in found:
        del os.environ[name]
    return found
