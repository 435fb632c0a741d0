"""Equal chat completions of one session at the same moment, without an idempotency key."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import httpx
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Say
from throughline.db.database import Database

PATH = "/v1/chat/completions"
AT_ONCE = 6
NAMES = [{"X-Chat-Id": "mine"}, {"X-Session-Id": "mine"}]


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        stage.model.by_request = lambda _request: Say("Yes.")
        yield stage


def body_of(texts: Sequence[str]) -> dict[str, object]:
    """Return a whole chat that ends with the last of `texts`."""
    earlier = [
        message
        for text in texts[:-1]
        for message in ({"role": "user", "content": text}, {"role": "assistant", "content": "Yes."})
    ]
    return {"model": "assistant", "messages": [*earlier, {"role": "user", "content": texts[-1]}]}


async def say(stage: OpenAIStage, texts: Sequence[str], headers: dict[str, str]) -> httpx.Response:
    """Send a whole chat that ends with the last of `texts`."""
    return await stage.http.post(PATH, json=body_of(texts), headers=headers)


async def say_at_once(stage: OpenAIStage, texts: Sequence[str], headers: dict[str, str]) -> set[tuple[int, str, str]]:
    """Send the same several times together, and return what differs among status, run and session of the answers.

    The turn ends when all answers have begun: a request that came after its end would ask for another answer.
    """
    gate = asyncio.Event()
    stage.model.by_request = lambda _request: Say("Yes indeed.", gate=gate)
    body = {**body_of(texts), "stream": True}
    async with AsyncExitStack() as stack:
        answers = await asyncio.gather(
            *(
                stack.enter_async_context(stage.http.stream("POST", PATH, json=body, headers=headers))
                for _ in range(AT_ONCE)
            )
        )
        gate.set()
        for answer in answers:
            await answer.aread()
    return {
        (answer.status_code, answer.headers.get("x-run-id", answer.text), answer.headers.get("x-session-id", ""))
        for answer in answers
    }


@pytest.mark.parametrize("headers", NAMES)
async def test_the_first_message_of_a_chat_begins_one_turn(
    stage: OpenAIStage, headers: dict[str, str], database_url: str
) -> None:
    ((status, _, _),) = await say_at_once(stage, ["one"], headers)

    assert status == httpx.codes.OK
    assert await run_sql(database_url, "select count(*) from runs") == [(1,)]


@pytest.mark.parametrize("headers", NAMES)
async def test_a_further_message_begins_one_turn(
    stage: OpenAIStage, headers: dict[str, str], database_url: str
) -> None:
    first = await say(stage, ["one"], headers)

    ((status, _, session),) = await say_at_once(stage, ["one", "two"], headers)

    assert (status, session) == (httpx.codes.OK, first.headers["x-session-id"])
    assert await run_sql(database_url, "select count(*) from runs") == [(2,)]


async def test_a_branch_is_begun_once(stage: OpenAIStage, database_url: str) -> None:
    first = await say(stage, ["one"], NAMES[0])

    ((status, _, session),) = await say_at_once(stage, ["other", "two"], NAMES[0])

    assert status == httpx.codes.OK
    assert session != first.headers["x-session-id"]
    assert await run_sql(database_url, "select count(*) from runs") == [(2,)]


async def test_different_messages_at_the_same_moment_are_turns_of_their_own(stage: OpenAIStage) -> None:
    await say(stage, ["one"], NAMES[1])

    answers = await asyncio.gather(*(say(stage, [text], NAMES[1]) for text in ("two", "three")))

    assert len({answer.headers["x-run-id"] for answer in answers}) == len(answers)
