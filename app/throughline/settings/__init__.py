"""All settings of the service, read once from the environment or `.env`, and passed on in small frozen values.

Each section has a file; `all_settings.py` joins them. `environment.py` alone reads the environment.
"""

from throughline.settings.all_settings import ENV_FILE, ClientSettings, Settings, read_settings, with_sections
from throughline.settings.environment import (
    TRACING_PREFIXES,
    add_to_environment,
    read_env_file,
    read_environment,
    read_variable,
    remove_tracing_variables,
)

__all__ = [
    "ENV_FILE",
    "TRACING_PREFIXES",
    "ClientSettings",
    "Settings",
    "add_to_environment",
    "read_env_file",
    "read_environment",
    "read_settings",
    "read_variable",
    "remove_tracing_variables",
    "with_sections",
]
