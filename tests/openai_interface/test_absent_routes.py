"""Routes of OpenAI's that are absent: their errors are those that OpenAI's clients read."""

from collections.abc import AsyncIterator

import openai
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from throughline.db.database import Database
from throughline.openai.errors import INSTEAD


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


async def test_the_client_is_told_what_to_use_in_place_of_embeddings(stage: OpenAIStage) -> None:
    with pytest.raises(openai.NotFoundError, match=r"no /v1/embeddings\. Ask the provider") as raised:
        await stage.client.embeddings.create(model="assistant", input="hi")

    assert (raised.value.code, raised.value.type) == ("route_not_found", "invalid_request_error")


@pytest.mark.parametrize("name", INSTEAD)
@pytest.mark.parametrize(("method", "rest"), [("POST", ""), ("GET", ""), ("GET", "/x_1"), ("DELETE", "/x_1/y")])
async def test_each_absent_route_has_an_error_with_a_remedy(
    stage: OpenAIStage, name: str, method: str, rest: str
) -> None:
    answer = await stage.http.request(method, f"/v1/{name}{rest}")

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "route_not_found", None)
    assert error["message"] == f"This service has no /v1/{name}. {INSTEAD[name]}"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions/chatcmpl-1", 404, "route_not_found"),
        ("POST", "/v1/responses/resp_1/nothing", 404, "route_not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/assistant", 405, "method_not_allowed"),
        ("PUT", "/v1/conversations", 405, "method_not_allowed"),
    ],
)
async def test_unknown_routes_beside_the_present_ones_are_told_in_the_same_form(
    stage: OpenAIStage, method: str, path: str, status: int, code: str
) -> None:
    answer = await stage.http.request(method, path)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ("allow" in answer.headers) is (status == 405)


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/session", "/embeddings", "/v1/embeddingsx"])
async def test_other_unknown_routes_have_problem_documents(stage: OpenAIStage, path: str) -> None:
    answer = await stage.http.post(path)

    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/route_not_found")
