"""The file `.env` of a program: unknown names are refused, and variables of model providers reach their packages.

The client library does neither: it may run in a folder with another program's `.env`. A module of its own, because
`settings/` knows no providers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import structlog

from throughline.assembly.front_ends import settings_sections
from throughline.domain.errors import SettingInvalid
from throughline.llm.providers import PROVIDER_VARIABLES
from throughline.settings import (
    ENV_FILE,
    TRACING_PREFIXES,
    Settings,
    add_to_environment,
    read_env_file,
    read_environment,
    read_settings,
    remove_tracing_variables,
    with_sections,
)

PROGRAM_SETTINGS = with_sections(settings_sections())
"""All settings of a program: those of the service and of its front ends."""

SETTING_NAMES = frozenset(name.upper() for name in PROGRAM_SETTINGS.model_fields)
VARIABLE_SUFFIX = "_ENV"
"""End of the names of settings that name a variable with a secret."""

FILE_LIKENESS, ENVIRONMENT_LIKENESS = 0.75, 0.9
"""Likeness (difflib's ratio) from which a name is taken for a misspelt one. The environment is full of other names."""

SHORTEST_WARNED = 10
"""Length from which a name in the environment is compared: short ones resemble others by chance."""

MOST_NAMED = 8
"""Number of unknown names in one error text."""

_COMPOSE_PREFIXES = ("POSTGRES_", "COMPOSE_", "DOCKER_")
"""Beginnings of names that docker compose and docker-compose.yml read from `.env`: they are not refused there."""

_LIBRARY_PREFIXES = ("PG", "LC_")
_LIBRARY_NAMES = frozenset({
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "LANG", "LANGUAGE", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
})  # fmt: skip
"""Variables of libraries, which read them from the environment only: in `.env` they have no effect."""

_SHOWABLE = re.compile(r"[A-Z][A-Z0-9_]{1,59}|[a-z][a-z0-9_]{1,59}")
"""Names that are shown. Anything else may be a key that was pasted into a line of its own."""

_AGENTS_KEY_ENV = re.compile(r"\bapi_key_env[\"']?\s*:\s*[\"']?([A-Z_][A-Z0-9_]*)")

_SERVERS_VARIABLE = re.compile(r":[ \t]*[\"']?([A-Z_][A-Z0-9_]*)[\"']?[ \t]*(?=[,}#]|$)", re.MULTILINE)
"""Variables that `mcp_servers` names, wherever they stand below it: `{Authorization: MY_SERVER_AUTHORIZATION}`."""

log = structlog.get_logger(__name__)


def read_program_settings(data_dir: Path | None = None) -> Settings:
    """Return the settings of a program; `data_dir` from the command line wins.

    Raises SettingInvalid with each unknown name in `.env`, or with each wrong setting.
    """
    _check_names()
    return read_settings(data_dir, PROGRAM_SETTINGS)


def add_provider_variables() -> None:
    """Put the variables of model providers that `.env` sets into the environment, where their packages read them.

    Variables that the environment has are kept. Settings stay out of the environment, and so do keys that a setting or
    an agent file names: these are handed to the packages.
    """
    found = {name: value for name, value in read_env_file().items() if name in PROVIDER_VARIABLES and value}
    add_to_environment(found)


def prepare_environment() -> None:
    """Put providers' variables from `.env` into the environment, and keep libraries from tracing.

    Users' texts are sent only to services that a setting names. Variables without effect are logged.
    """
    add_provider_variables()
    if ignored := remove_tracing_variables():
        log.warning("tracing variables ignored", variables=ignored)
    if names := ineffective_names():
        hint = "libraries read them from the environment itself"
        log.warning("variables in .env ignored by libraries", variables=names, hint=hint)
    for name, meant in misspelt_variables().items():
        log.warning("environment variable ignored, no such setting", variable=name, hint=f"did you mean {meant}?")


def ineffective_names() -> tuple[str, ...]:
    """Return the names in `.env` that libraries read from the environment only."""
    return tuple(sorted(name for name in read_env_file() if _is_library_name(name)))


def misspelt_variables() -> Mapping[str, str]:
    """Return the environment's variables that nearly have the name of a setting, each with that setting's name.

    Names of settings that the environment sets are not suggested.
    """
    environment = read_environment()
    unset = SETTING_NAMES - {name.upper() for name in environment}
    names = (name for name in environment if len(name) >= SHORTEST_WARNED and not _is_known(name, PROVIDER_VARIABLES))
    found = ((name, _closest(name, unset, ENVIRONMENT_LIKENESS)) for name in sorted(names))
    return {name: meant for name, meant in found if meant}


def _check_names() -> None:
    """Raise SettingInvalid for lines of `.env` without a value, and for names that nobody is known to read.

    Known are settings, variables of model providers, and variables of keys that settings or agent files name. Names of
    docker compose, of tracing and of libraries are not refused.
    """
    file = read_env_file()
    known = PROVIDER_VARIABLES | _named_keys(file)
    unknown = [name for name, value in file.items() if value is None or not _is_known(name, known)]
    if not unknown:
        return
    lines = [_explain(name, file[name], known) for name in unknown]
    more = [f"{len(lines) - MOST_NAMED} more"] if len(lines) > MOST_NAMED else []
    raise SettingInvalid(
        f"`{ENV_FILE}` has names that are not known: {'; '.join([*lines[:MOST_NAMED], *more])}. Correct or remove "
        "them. Variables of other programs, and of your own tools, belong in the environment itself."
    )


def _named_keys(file: Mapping[str, str | None]) -> frozenset[str]:
    """Return the names of the variables with secrets that settings and agent files name."""
    given = {name.upper(): value or "" for name, value in file.items()}
    given |= {name.upper(): value for name, value in read_environment().items() if value}
    by_settings = {given.get(name, "") for name in SETTING_NAMES if name.endswith(VARIABLE_SUFFIX)}
    return frozenset(by_settings | set(_named_by_agents(given.get("AGENTS_DIR", ""))))


def _named_by_agents(folder: str) -> Iterator[str]:
    """Yield the variables with secrets that agent files name, for models and for servers of tools.

    Errors in the files are reported when the agents are loaded.
    """
    if not folder:
        return
    for path in Path(folder).glob("*.y*ml"):
        try:
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
        except (OSError, UnicodeDecodeError):
            continue
        yield from _AGENTS_KEY_ENV.findall(text)
        yield from _SERVERS_VARIABLE.findall(text.partition("mcp_servers:")[2])


def _is_known(name: str, known: frozenset[str]) -> bool:
    is_others = name.startswith((*_COMPOSE_PREFIXES, *TRACING_PREFIXES)) or _is_library_name(name)
    return name.upper() in SETTING_NAMES or name in known or is_others


def _is_library_name(name: str) -> bool:
    return name.upper() in _LIBRARY_NAMES or name.startswith(_LIBRARY_PREFIXES)


def _explain(name: str, value: str | None, known: frozenset[str]) -> str:
    """Return the text for an unknown name. It never contains a value, nor a name that may be a pasted key."""
    line = _line_of(name)
    if value is None:
        return f"line {line} is not written as NAME=value"
    if not _SHOWABLE.fullmatch(name):
        return f"the name in line {line}"
    meant = _closest(name, SETTING_NAMES | known, FILE_LIKENESS)
    return f"{name} (line {line}{f', did you mean {meant}?' if meant else ''})"


def _line_of(name: str) -> int:
    """Return the number of the last line that sets `name`, which is the one that counts."""
    wanted = re.compile(rf"\s*(?:export\s+)?['\"]?{re.escape(name)}['\"]?\s*(?:=|#|\Z)")
    lines = Path(ENV_FILE).read_text(encoding="utf-8").splitlines()
    return max((number for number, line in enumerate(lines, start=1) if wanted.match(line)), default=1)


def _closest(name: str, names: Iterable[str], likeness: float) -> str:
    """Return the name most like `name`, '' if none is like it."""
    return next(iter(get_close_matches(name.upper(), sorted(names), n=1, cutoff=likeness)), "")
