"""The AI SDK itself: its chat on a served application, and its reader on streams of random runs."""

import asyncio
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ai_sdk.test_chunks import printed
from fakes.ai_sdk_client import read_answer, read_chunks, said
from fakes.ai_sdk_stage import open_chat_stage
from fakes.played_runs import PlayedRun, runs
from fakes.scripted_model import Call, Hang, Say, Step
from fakes.stage import AGENT, OneTool
from service.test_generated_clients import run
from throughline.db.database import Database
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ModelRequest

PROGRAM = Path(__file__).parent / "javascript"
NPM = shutil.which("npm")
LEAST_NODE = 22
STREAMS = 60
CAREFUL = replace(AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
CLEAR = ["weather", "output-available", {"sky": "clear"}]


def answer(request: ModelRequest) -> Step:
    """Answer as the program expects it: with the call that the user's message names, or never."""
    newest = request.prompt.messages[-1]
    if newest.content == "hang":
        return Hang("Wait")
    if newest.role is Role.USER and newest.content in {"delete", "weather"}:
        return Call((ToolCall(str(newest.content), str(newest.content), "{}"),), is_streamed=True)
    return Say("Hello.")


def has_node() -> bool:
    """Return whether the AI SDK can be installed and run: it needs a newer Node than others do."""
    node = shutil.which("node")
    if NPM is None or node is None:
        return False
    version = subprocess.check_output([node, "--version"], text=True)
    return int(version.removeprefix("v").partition(".")[0]) >= LEAST_NODE


def random_streams() -> list[str]:
    """Return the streams of random runs."""
    found: list[str] = []

    @settings(max_examples=STREAMS, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(runs())
    def keep(played: PlayedRun) -> None:
        found.append(asyncio.run(printed(played)))

    keep()
    return found


@pytest.mark.proof
@pytest.mark.skipif(not has_node(), reason=f"npm and Node {LEAST_NODE} are not installed: the AI SDK needs them")
async def test_the_ai_sdk_can_be_used_for_everything(database: Database, tmp_path: Path) -> None:
    project = shutil.copytree(PROGRAM, tmp_path / "project", ignore=shutil.ignore_patterns("node_modules"))
    await run(project, NPM or "", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    streams = await asyncio.to_thread(random_streams)
    (project / "streams.json").write_text(json.dumps(streams))
    async with open_chat_stage(database, agent=CAREFUL, tools=OneTool("delete", "deleted", repeatable=False)) as stage:
        stage.model.by_request = answer
        address = str(stage.http.base_url).rstrip("/")
        found = json.loads(await run(project, "node", "use_the_sdk.mjs", address, "streams.json"))

    expected = [read_answer(read_chunks(stream)) for stream in streams]
    assert found.pop("streams") == json.loads(json.dumps([[said(one.message), one.error] for one in expected]))
    assert found == {
        "send": [["hi"], ["Hello."]],
        "approvalAsked": [["delete", "approval-requested", None]],
        "approved": [["delete", "output-available", "deleted"], "Hello."],
        "rejected": [["delete", "output-denied", None], "Hello."],
        "clientTool": [CLEAR, "Hello."],
        "storedAlike": True,
        "regenerated": [["hi"], ["Hello."]],
        "newestOnly": 4,
        "stopped": 204,
        "resumed": [["hang"], ["Wait"]],
        "error": "messages.0.parts.0 is a file of the type 'text/plain'. Only images can be sent: leave it out, or "
        "send its text.",
    }
