"""The compliance tests of Open Responses, run against the served application: `make open-responses FOLDER=…`."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from fakes.openai_stage import open_openai_stage
from fakes.scripted_model import Call, Say, Step
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ModelRequest

FOLDER = os.environ.get("OPEN_RESPONSES", "")
"""A clone of https://github.com/openresponses/openresponses whose dependencies are installed."""

SECONDS = 300
pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="OPEN_RESPONSES does not name a clone of openresponses/openresponses"),
    pytest.mark.skipif(shutil.which("bun") is None, reason="the tests of Open Responses run in bun, which is missing"),
    pytest.mark.timeout(SECONDS),
]


def answer(request: ModelRequest) -> Step:
    """Call the weather tool where there is one, else answer with text."""
    if any(tool.name == "get_weather" for tool in request.tools):
        return Call((ToolCall("call_1", "get_weather", '{"location": "San Francisco, CA"}'),), is_streamed=True)
    return Say("Hello there, this is an answer.")


async def test_all_compliance_tests_of_open_responses_pass(database: Database) -> None:
    async with open_openai_stage(database) as stage:
        stage.model.by_request = answer
        program = ("bun", "run", str(Path(FOLDER) / "bin" / "compliance-test.ts"))
        address = f"{str(stage.http.base_url).rstrip('/')}/v1"
        running = await asyncio.create_subprocess_exec(
            *program,
            "-u",
            address,
            "-k",
            "none",
            "-m",
            "assistant",
            "--json",
            cwd=FOLDER,
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await running.communicate()
    report = json.loads(printed)

    assert {result["id"]: result.get("errors") for result in report["results"] if result["status"] != "passed"} == {}
    assert len(report["results"]) >= 17
