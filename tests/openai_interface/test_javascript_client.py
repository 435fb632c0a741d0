"""OpenAI's client for JavaScript works after a change of its address."""

import json
import shutil
from pathlib import Path

import pytest

from fakes.openai_stage import open_openai_stage
from fakes.scripted_model import Call, Hang, Say, Step
from service.test_generated_clients import run
from throughline.db.database import Database
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ModelRequest, Usage

PROGRAM = Path(__file__).parent / "javascript"
NPM = shutil.which("npm")
SAID = {
    "chat": "Hello.",
    "chatStream": "Hello.",
    "chatUsage": True,
    "chatTools": ["Hello.", "Graz"],
    "chatFormat": "Graz",
    "previous": ["Hello.", "Hello."],
    "inputItems": 3,
    "tools": ["Graz", "Hello."],
    "format": "Graz",
    "conversation": ["user", "assistant"],
    "deleted": True,
    "background": ["Hello.", 3],
    "cancelled": "cancelled",
    "error": ["NotFoundError", 404, "model_not_found", "model"],
}
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(NPM is None, reason="npm is not installed: the client cannot be installed"),
]


def answer(request: ModelRequest) -> Step:
    """Answer as the program expects it: with its tool if it has one, in its format, or never."""
    newest = request.prompt.messages[-1]
    if newest.content == "hang":
        return Hang()
    if request.response_format is not None:
        return Say('{"town": "Graz"}')
    if any(tool.name == "weather" for tool in request.tools) and newest.role is Role.USER:
        return Call((ToolCall("call_1", "weather", '{"town": "Graz"}'),), is_streamed=True)
    return Say("Hello.", usage=Usage(input_tokens=3, output_tokens=2))


async def test_openais_javascript_client_can_be_used_for_everything(database: Database, tmp_path: Path) -> None:
    project = shutil.copytree(PROGRAM, tmp_path / "project", ignore=shutil.ignore_patterns("node_modules"))
    await run(project, NPM or "", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    async with open_openai_stage(database) as stage:
        stage.model.by_request = answer
        address = f"{str(stage.http.base_url).rstrip('/')}/v1"
        printed = await run(project, "node", "use_the_client.mjs", address)

    assert json.loads(printed) == SAID
