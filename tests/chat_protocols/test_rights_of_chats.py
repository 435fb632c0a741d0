"""Who may continue which session in the protocols of front ends, where a request names it in its body."""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias
from uuid import uuid4

import httpx
import pytest

from fakes.access_tokens import TokenPage, owned_by
from fakes.ag_ui_client import Json
from fakes.api_stage import ApiStage
from throughline.domain.keys import Scope

Ask: TypeAlias = Callable[[str], tuple[str, Json]]


def ask_ag_ui(name: str) -> tuple[str, Json]:
    """Return the path and body that send a message to the session of this name."""
    message = {"id": "m", "role": "user", "content": "hi"}
    return "/ag-ui/assistant", {"threadId": name, "runId": str(uuid4()), "messages": [message]}


def ask_ai_sdk(name: str) -> tuple[str, Json]:
    """Return what `ask_ag_ui` does, for the AI SDK."""
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    return "/ai-sdk/assistant", {"id": name, "messages": [message], "trigger": "submit-message"}


def ask_langgraph(name: str) -> tuple[str, Json]:
    """Return what `ask_ag_ui` does, for LangGraph's interface."""
    body = {"assistant_id": "assistant", "input": {"messages": [{"role": "user", "content": "hi"}]}}
    return f"/langgraph/threads/{name}/runs/wait", {**body, "if_not_exists": "create"}


NEW = str(uuid4())
pytestmark = pytest.mark.parametrize("ask", [ask_ag_ui, ask_ai_sdk, ask_langgraph])


@pytest.fixture
async def page(keyed: ApiStage) -> AsyncIterator[TokenPage]:
    """Yield two sessions of anna, with the key that serves her."""
    key = await keyed.key("anna")
    async with keyed.client(key=key) as client:
        yield TokenPage(keyed, key, await owned_by(client), await owned_by(client))
    await keyed.turns.settle()


async def send(page: TokenPage, key: str, request: tuple[str, Json], user: str = "") -> httpx.Response:
    async with page.stage.client(key=key, user=user) as client:
        return await client.post(request[0], json=request[1])


async def sessions(page: TokenPage, key: str, user: str = "") -> list[str]:
    """Return the ids of the user's sessions, and their own ids."""
    async with page.stage.client(key=key, user=user) as client:
        listed = (await client.get("/v1/sessions")).json()["data"]
    return [name for session in listed for name in (session["id"], session["external_id"])]


async def test_nothing_is_served_without_a_key_or_to_one_that_may_only_read(page: TokenPage, ask: Ask) -> None:
    reader = await page.stage.key("anna", Scope.READ)

    statuses = [(await send(page, key, ask(NEW))).status_code for key in ("", reader)]

    assert statuses == [httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN]
    assert NEW not in await sessions(page, page.key)


async def test_the_name_of_another_users_session_makes_a_session_of_ones_own(page: TokenPage, ask: Ask) -> None:
    bobs = await page.stage.key("bob")

    answered = await send(page, bobs, ask(page.first.session_id))

    assert (answered.status_code, b"my secret" in answered.content) == (httpx.codes.OK, False)
    made, name = await sessions(page, bobs)
    assert (made != page.first.session_id, name) == (True, page.first.session_id)


async def test_a_token_serves_its_sessions_only(page: TokenPage, ask: Ask) -> None:
    token, wide = await page.token(page.first), await page.token()

    own, other, new, any_new = [
        (await send(page, key, ask(name))).status_code
        for key, name in (
            (token, page.first.session_id),
            (token, page.second.session_id),
            (token, NEW),
            (wide, NEW),
        )
    ]

    assert (own, new, any_new) == (200, 403, 200)
    assert other in {403, 404}


async def test_a_back_end_acts_for_its_users(page: TokenPage, ask: Ask) -> None:
    back_end = await page.stage.key("web", Scope.READ, Scope.WRITE, Scope.ACT_AS)

    answered = await send(page, back_end, ask(NEW), user="carla")

    assert answered.status_code == httpx.codes.OK
    assert NEW in await sessions(page, back_end, "carla")
    assert NEW not in await sessions(page, back_end)


async def test_a_token_for_some_sessions_makes_no_branch(page: TokenPage, ask: Ask) -> None:
    token = await page.token(page.first)
    path, body = ask(page.first.session_id)
    if "messages" not in body:
        pytest.skip("threads of LangGraph have no branches")
    await send(page, token, (path, body))
    body["messages"] = [{**body["messages"][0], "content": "edited", "parts": [{"type": "text", "text": "edited"}]}]
    body |= {"runId": "other", "messageId": body["messages"][0]["id"]}

    refused = await send(page, token, (path, body))

    assert refused.status_code in {httpx.codes.FORBIDDEN, httpx.codes.CONFLICT}


async def test_a_token_for_some_sessions_learns_of_no_others(page: TokenPage, ask: object) -> None:
    del ask
    token, body = await page.token(page.first), {"assistant_id": "assistant", "input": "hi"}
    async with page.stage.client(key=token) as client:
        paths = [f"/langgraph/threads/{name}/runs/wait" for name in (NEW, page.second.session_id)]
        answers = [await client.post(path, json=body) for path in paths]

    assert {answer.status_code for answer in answers} == {httpx.codes.NOT_FOUND}
