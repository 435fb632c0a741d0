"""Starting: what cannot work is refused at once, in a sentence."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from fakes.pooler import environment_of
from fakes.programs import environment_for_programs
from fakes.service_process import free_port, run_service, start_program
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow


async def outcome_of(folder: Path, environment: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    log = folder / "program.log"
    process = await start_program(folder, environment, *arguments, log=log)
    try:
        async with asyncio.timeout(HANG_SECONDS):
            code = await process.wait()
    finally:
        process.kill()
    return code, log.read_text()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"DATABASE_URL": "postgresql://nobody:hunter2@127.0.0.1:1/none"},
            "127.0.0.1:1 (DATABASE_URL): the connection was refused",
        ),
        ({"DATABASE_URL": "mysql://localhost/x"}, "PostgreSQL"),
        ({"DEFAULT_LLM": "openai:gpt-4o"}, "OPENAI_API_KEY"),
        ({"DEFAULT_LLM": "nonsense:model"}, "nonsense"),
        ({"EMBEDDING_MODEL": "openai:text-embedding-3-small"}, "OPENAI_API_KEY"),
        ({"EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1"}, "need EMBEDDING_MODEL"),
        ({"CONTEXT_USAGE_THRESHOLD": "7"}, "CONTEXT_USAGE_THRESHOLD"),
        ({"AGENTS_DIR": "missing-folder"}, "missing-folder"),
        ({"BOOTSTRAP_API_KEY": "short"}, "at least 24 characters"),
        ({"SLACK_BOT_TOKEN": "xoxb-1"}, "SLACK_SIGNING_SECRET is not set. Set it to the signing secret"),
        ({"SLACK_AGENT": "nope"}, "SLACK_AGENT: There is no agent 'nope'. Known agents: assistant"),
        ({"HOST": "exa mple"}, "Cannot listen on exa mple"),
        ({"CORS_ORIGINS": "*"}, "CORS_ORIGINS: * would serve every web page"),
        ({"HOST": "0.0.0.0"}, "BOOTSTRAP_API_KEY"),  # noqa: S104  # the bind that must be refused
    ],
    ids=[
        "no database",
        "other database",
        "no key",
        "no provider",
        "no embedding key",
        "no embedding model",
        "bad setting",
        "no folder",
        "short key",
        "half of slack",
        "no slack agent",
        "no host",
        "any page",
        "open bind",
    ],
)
async def test_a_start_that_cannot_work_ends_with_a_sentence_and_no_traceback(
    folder: Path, environment: Mapping[str, str], said: str, database_url: str
) -> None:
    code, output = await outcome_of(folder, {**environment_of(database_url), **environment}, "serve", "--port", "0")

    assert code == 1
    assert said in output
    assert "Traceback" not in output
    assert "hunter2" not in output


async def test_a_misspelt_name_in_the_file_ends_the_start_without_its_value(folder: Path, database_url: str) -> None:
    (folder / ".env").write_text("OPENAI_API_KYE=hunter2\n")

    code, output = await outcome_of(folder, environment_of(database_url), "serve", "--port", "0")

    assert code == 1
    assert "OPENAI_API_KYE (line 1, did you mean OPENAI_API_KEY?)" in output
    assert "Traceback" not in output
    assert "hunter2" not in output


async def test_a_providers_key_in_the_file_is_enough_to_start(folder: Path, database_url: str) -> None:
    (folder / ".env").write_text("OPENAI_API_KEY=hunter2\n")
    port, environment = free_port(), {**environment_of(database_url), "DEFAULT_LLM": "openai:gpt-4o"}

    async with run_service(folder, environment, port=port), httpx.AsyncClient() as client:
        found = await client.get(f"http://127.0.0.1:{port}/")

    assert found.json()["links"]["reference"] == "docs"


async def test_a_taken_port_is_named(folder: Path, database_url: str) -> None:
    port, environment = free_port(), environment_of(database_url)
    async with run_service(folder, environment, port=port):
        code, output = await outcome_of(folder, environment, "serve", "--port", str(port))

    assert code == 1
    assert str(port) in output
    assert "Traceback" not in output


async def test_the_installed_command_serves_until_it_is_told_to_stop(folder: Path) -> None:
    """The other tests fork a process that has everything loaded; this one is started as people do."""
    command = Path(sys.executable).with_name("throughline")
    arguments = ("serve", "--port", "0", "--data-dir", str(folder / "data"))
    process = await asyncio.create_subprocess_exec(
        command, *arguments, stdout=asyncio.subprocess.PIPE, env=environment_for_programs(), cwd=folder
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANG_SECONDS):
            told = [(await process.stdout.readline()).decode().split() for _ in range(5)]
            process.send_signal(signal.SIGTERM)
            await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()

    address = told[0][-1]
    assert told[0][:-1] == ["Throughline", "is", "serving", "on"]
    assert told[1][:2] == ["model", "offline"]
    assert told[2] == ["database", "embedded,", "in", str((folder / "data").resolve())]
    assert told[3:] == [["interface", f"{address}/docs"], ["chat", "throughline", "chat", "--url", address]]
    assert process.returncode == 0
