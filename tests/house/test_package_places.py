"""Each third-party package is used in its rooms only: one table for all of them."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from house.tree import ROOT, name_of, python_files, syntax_tree

PACKAGE = ROOT / "app" / "throughline"
ANYWHERE = frozenset({"httpx", "platformdirs", "pydantic", "pydantic_core", "structlog", "uvloop"})
"""All rooms but the engine and the words may use these."""

STANDARD_LIBRARY_ONLY = frozenset({"context", "domain"})
PLACES = {
    "alembic": {"db"},
    "asyncpg": {"db", "postgres_server"},
    "sqlalchemy": {"db", "postgres_server", "slack"},
    "numpy": {"db"},
    "ormsgpack": {"db"},
    "snowballstemmer": {"db"},
    "uuid_utils": {"db"},
    "psutil": {"postgres_server"},
    "fastapi": {"ag_ui", "ai_sdk", "api", "chat_protocols", "console", "http", "langgraph_api", "mcp_server", "openai"},
    "fastapi_offline": {"http"},
    "httptools": {"http"},
    "starlette": {
        "ag_ui",
        "ai_sdk",
        "api",
        "chat_protocols",
        "console",
        "http",
        "langgraph_api",
        "mcp_server",
        "openai",
    },
    "uvicorn": {"http"},
    "langchain": {"agent_graphs", "llm"},
    "langchain_core": {"agent_graphs", "llm"},
    "langchain_openai": {"llm"},
    "langchain_anthropic": {"llm"},
    "langchain_google_genai": {"llm"},
    "openai": {"llm"},
    "anthropic": {"llm"},
    "huggingface_hub": {"llm"},
    "tiktoken": {"llm"},
    "tokenizers": {"llm"},
    "langgraph": {"agent_graphs", "turn"},
    "click": {"assembly", "cli", "slack"},
    "rich": {"cli"},
    "jinja2": {"console"},
    "markupsafe": {"console"},
    "markdown_it": {"cli", "console"},
    "prompt_toolkit": {"cli"},
    "slack_bolt": {"slack"},
    "slack_sdk": {"slack"},
    "aiohttp": {"slack"},
    "jsonschema_rs": {"execution"},
    "yaml": {"agents", "console", "http", "llm"},
    "genai_prices": {"llm"},
    "opentelemetry": {"tracing"},
    "prometheus_client": {"telemetry", "metric_files"},
    "pydantic_settings": {"settings"},
}
"""The rooms that may import a package."""

FOLDERS = dict.fromkeys(("anyio", "httpx2", "mcp", "mcp_types"), "tools/mcp_client")
"""Packages that one folder of a room may import. A service without servers of tools imports nothing of them."""


def test_third_party_packages_keep_to_their_rooms() -> None:
    misplaced = [
        f"{name_of(path)}: {package}"
        for path in python_files("app")
        for package in _packages(path)
        if not (_is_allowed(package, _room(path)) or _is_in_folder(path, FOLDERS.get(package)))
    ]

    assert misplaced == []


def _is_allowed(package: str, room: str) -> bool:
    return room not in STANDARD_LIBRARY_ONLY and (package in ANYWHERE or room in PLACES.get(package, ()))


def _is_in_folder(path: Path, folder: str | None) -> bool:
    return folder is not None and path.is_relative_to(PACKAGE / folder)


def _room(path: Path) -> str:
    """Return the first part below the package: a folder, or a module of its own."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _packages(path: Path) -> Iterator[str]:
    """Yield the packages a file imports, without the standard library and our own."""
    for node in ast.walk(syntax_tree(path)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case _:
                continue
        for module in modules:
            package = module.partition(".")[0]
            if package != "throughline" and package not in sys.stdlib_module_names:
                yield package
