"""Requests as the clients of the ecosystem send them are answered, by an open and by a closed agent."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Say, Step
from fakes.stage import AGENT
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.domain.prompt import ModelRequest, OverrideField

RECORDED = Path(__file__).parent / "client_requests.jsonl"
"""One request a line: the client with its version, its settings in words, and what it sent."""

REQUESTS: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
CLIENTS = sorted({request["client"] for request in REQUESTS})
LIKE_SHIPPED = replace(AGENT, overrides=frozenset({OverrideField.INSTRUCTIONS, OverrideField.RESPONSE_FORMAT}))
FAILURES = ("response.failed", '"error":{')


def answer(request: ModelRequest) -> Step:
    """Answer in the format that is asked for."""
    return Say("Hello." if request.response_format is None else '{"town": "Graz"}')


async def failure_of(stage: OpenAIStage, request: dict[str, Any]) -> str:
    """Send the request and return what is wrong with the answer, '' if nothing is."""
    response = await stage.http.post(request["path"], json=request["body"])
    is_answered = response.status_code == httpx.codes.OK and not any(sign in response.text for sign in FAILURES)
    return "" if is_answered else f"{response.status_code} {response.text}"


@pytest.mark.parametrize("agent", [LIKE_SHIPPED, AGENT], ids=["shipped", "written"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_recorded_requests_of_a_client_are_answered(
    database: Database, client: str, agent: AgentDefinition
) -> None:
    sent = [request for request in REQUESTS if request["client"] == client]
    async with open_openai_stage(database, agent=agent) as stage:
        stage.model.by_request = answer
        failures = [(request["settings"], await failure_of(stage, request)) for request in sent]

    assert [failed for failed in failures if failed[1]] == []
    assert len(stage.model.requests) == len(sent)
