"""Who may cancel a run by reading it."""

import httpx

from fakes.api_stage import ApiStage
from throughline.domain.keys import Scope

RUN = {"assistant_id": "assistant", "input": {"messages": [{"role": "user", "content": "hi"}]}}


async def test_a_key_that_may_only_read_cannot_tie_a_run_to_its_stream(keyed: ApiStage) -> None:
    writing, reading = await keyed.key("anna"), await keyed.key("anna", Scope.READ)
    async with keyed.client(key=writing) as writer, keyed.client(key=reading) as reader:
        thread = (await writer.post("/langgraph/threads", json={})).json()["thread_id"]
        run = (await writer.post(f"/langgraph/threads/{thread}/runs", json=RUN)).json()["run_id"]
        at = f"/langgraph/threads/{thread}/runs/{run}/stream"
        refused = await reader.get(at, params={"cancel_on_disconnect": "true"})
        allowed = await writer.get(at, params={"cancel_on_disconnect": "true"})

    assert (refused.status_code, allowed.status_code) == (httpx.codes.FORBIDDEN, httpx.codes.OK)
