"""A front end goes with its package and its line: what is left imports, starts on a new database and answers."""

import asyncio
import shutil
import subprocess
import sys
import tokenize
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from pkgutil import resolve_name

import httpx
import pytest

from fakes.pooler import environment_of
from fakes.programs import ROOT, environment_for_programs
from fakes.raw_sql import run_sql
from fakes.service_process import free_port, is_ready, tail
from fakes.waiting import HANG_SECONDS
from throughline.assembly.front_ends import commands
from throughline.cli.root import command_line

pytestmark = pytest.mark.slow

IMPORT_ALL = """
import importlib, pkgutil, throughline
for found in pkgutil.walk_packages(throughline.__path__, "throughline."):
    importlib.import_module(found.name)
"""
PROGRAM = "from throughline.main import main; main()"
PATHS = {
    "ag_ui": "/ag-ui/assistant",
    "langgraph_api": "/langgraph/runs/wait",
    "ai_sdk": "/ai-sdk/assistant",
    "console": "/console/sessions",
    "mcp_server": "/mcp",
    "openai": "/v1/responses",
    "slack": "/slack/events",
}
"""A path of each front end that another one does not have."""

NAMES_THAT_STAY = {
    "domain/message.py": {"SLACK"},  # where a message came from, which rows say
    "domain/session.py": {"SLACK"},  # the same: answers there are read by several people
    "domain/service_status.py": {"SLACK", "slack"},  # the kind of a process, which rows say, and a report's field
    "db/service_status.py": {"slack"},
    "cli/commands_status.py": {"slack"},
    "domain/keys.py": {"slack_people"},  # a count of the report on an erased user
    "wire/service.py": {"slack_people", "slack"},
    "turn/summary/summariser.py": {"SLACK_TOKENS"},  # spare ones, which have nothing to do with it
}
"""The names of Slack outside its package, by file: taking them away would change stored rows and answers."""


def without(front_end: str, folder: Path) -> Mapping[str, str]:
    """Copy the service, remove the front end, and return the environment of programs that run the copy."""
    for part in ("app", "alembic"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder / "app" / "throughline" / front_end)
    listed = folder / "app" / "throughline" / "assembly" / "front_ends.py"
    lines = listed.read_text().splitlines(keepends=True)
    kept = [line for line in lines if f'"throughline.{front_end}"' not in line]
    assert len(lines) - len(kept) == 1
    listed.write_text("".join(kept))
    return {**environment_for_programs(), "PYTHONPATH": str(folder / "app")}


async def run(environment: Mapping[str, str], *arguments: str) -> str:
    """Run Python; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(HANG_SECONDS):
        told, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return told.decode()


def commands_in(told: str) -> set[str]:
    """Return the names of the commands that the help lists."""
    return {line.split()[0] for line in told.partition("Commands:\n")[2].splitlines()}


def own_commands(front_end: str) -> set[str]:
    """Return the name of the command that the front end brings, if it brings one."""
    command = resolve_name(f"throughline.{front_end}:PARTS").command
    return {resolve_name(f"throughline.{front_end}.{command}").name} if command else set()


async def until_ready(client: httpx.AsyncClient, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not await is_ready(client):
            assert process.returncode is None, tail(log)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(environment: Mapping[str, str], folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """Run `serve` while the context is open; yield a client once it is ready."""
    port, log = free_port(), folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, "serve", "--port", str(port)),
            env=environment,
            cwd=folder,
            stdout=output,
            stderr=output,
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=HANG_SECONDS) as client:
            await until_ready(client, process, log)
            yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("front_end", ["console", "mcp_server", "openai", "slack"])
async def test_the_service_works_without_a_front_end(front_end: str, tmp_path: Path, empty_database_url: str) -> None:
    environment = without(front_end, tmp_path)

    await run(environment, "-c", IMPORT_ALL)
    told = await run(environment, "-c", PROGRAM, "--help")
    async with serving({**environment, **environment_of(empty_database_url)}, tmp_path) as client:
        document = (await client.get("/openapi.json")).json()
        gone = await client.post(PATHS[front_end], json={})
        session = (await client.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        answered = (await client.post(f"/v1/sessions/{session}/messages", json={"content": "hello"})).json()
    tables = {str(name) for (name,) in await run_sql(empty_database_url, "select tablename::text from pg_tables")}

    assert commands_in(told) == {*command_line(commands()).commands} - own_commands(front_end)
    assert "/v1/sessions" in document["paths"]
    assert gone.status_code == httpx.codes.NOT_FOUND
    assert answered["message"]["content"]
    assert "sessions" in tables
    assert not {name for name in tables if name.startswith(f"{front_end}_")}


def test_names_of_slack_outside_its_package_are_few() -> None:
    package = ROOT / "app" / "throughline"
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        with path.open("rb") as file:
            names = {token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME}
        of_slack = {name for name in names if "slack" in name.lower()}
        if of_slack and not path.is_relative_to(package / "slack"):
            found[path.relative_to(package).as_posix()] = of_slack

    assert found == NAMES_THAT_STAY
