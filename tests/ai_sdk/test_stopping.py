"""Stopping a chat whose next message waits already."""

import httpx

from fakes.openai_stage import OpenAIStage
from fakes.scripted_model import Hang, Say
from fakes.waiting import until_found


async def test_stop_ends_the_turn_that_is_worked_on_and_not_the_next(stage: OpenAIStage) -> None:
    stage.model.script(Hang("Once"), Say("Noon."))
    session = (await stage.http.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]

    async def statuses() -> list[str]:
        listed = await stage.http.get(f"/v1/sessions/{session}/runs")
        return [run["status"] for run in reversed(listed.json()["data"])]

    async def is_first_running() -> bool:
        return (await statuses())[0] == "running"

    async def is_next_over() -> bool:
        return (await statuses())[1] == "succeeded"

    for text in ("Tell a story", "And the time?"):
        body, headers = {"content": text}, {"Prefer": "respond-async"}
        await stage.http.post(f"/v1/sessions/{session}/messages", json=body, headers=headers)
    await until_found(is_first_running)
    stopped = await stage.http.delete(f"/ai-sdk/assistant/{session}/stream")
    await until_found(is_next_over)

    assert stopped.status_code == httpx.codes.NO_CONTENT
    assert await statuses() == ["cancelled", "succeeded"]
