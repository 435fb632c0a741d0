"""Clients that generators make from the OpenAPI document compile without a warning and work."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.service_process import ServiceProcess, run_service

KEY = "key-of-generated-clients-0001"
pytestmark = [pytest.mark.slow, pytest.mark.proof]

PROJECT = Path(__file__).parents[1] / "generated_clients"
PROGRAMS = Path(sys.executable).parent
NPM = shutil.which("npm")
ANSWER = {"answer": "Hello.", "streamed": "Hello.", "problem": "/problems/not_found"}


async def run(folder: Path, *command: str | Path, **environment: str) -> str:
    """Run a program in a folder to its end and return what it prints. Fails with its output where it fails."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, complained = await process.communicate()
    assert process.returncode == 0, f"{command}: {printed.decode()}{complained.decode()}"
    return printed.decode()


async def write_document(service: ServiceProcess, folder: Path) -> None:
    document = (await service.client.get("/openapi.json")).raise_for_status()
    (folder / "openapi.json").write_bytes(document.content)


@pytest.mark.skipif(NPM is None, reason="npm is not installed: the generated TypeScript client is not checked")
async def test_a_generated_typescript_client_reads_answers_and_events(
    folder: Path, tmp_path: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="Hello."))
    project = shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("node_modules"))
    programs = project / "node_modules" / ".bin"
    await run(project, NPM or "", "ci", "--no-audit", "--no-fund", "--ignore-scripts")

    async with run_service(folder, {**on_double, "BOOTSTRAP_API_KEY": KEY}) as service:
        await write_document(service, project)
        await run(project, programs / "openapi-typescript", "openapi.json", "--output", "schema.d.ts")
        await run(project, programs / "tsc", "--project", ".")
        printed = await run(project, "node", "compiled/send_a_message.js", service.url, KEY)

    assert json.loads(printed) == ANSWER


async def test_a_generated_python_client_reads_answers(
    folder: Path, tmp_path: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="Hello."))
    generate = ("generate", "--meta", "none", "--fail-on-warning", "--path", "openapi.json")
    to_package = ("--output-path", "throughline_api", "--config", PROJECT / "openapi-python-client.yaml")
    script = PROJECT / "send_a_message.py"

    async with run_service(folder, {**on_double, "BOOTSTRAP_API_KEY": KEY}) as service:
        await write_document(service, tmp_path)
        await run(tmp_path, PROGRAMS / "openapi-python-client", *generate, *to_package)
        await run(
            tmp_path,
            PROGRAMS / "mypy",
            "--strict",
            "--follow-imports=silent",
            "--config-file=",
            script,
            MYPYPATH=str(tmp_path),
        )
        printed = await run(tmp_path, sys.executable, script, service.url, KEY, PYTHONPATH=str(tmp_path))

    assert json.loads(printed) == ANSWER
