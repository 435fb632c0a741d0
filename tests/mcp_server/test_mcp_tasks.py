"""Runs as tasks, for clients of revision 2026-07-28 that declare the extension."""

import pytest

from fakes.api_stage import ApiStage
from fakes.mcp_client import McpClient
from throughline.domain.run import RunError
from throughline.mcp_server.protocol import TASKS


async def begin(stage: ApiStage, tasks: McpClient) -> dict[str, object]:
    """Return the task of a turn that stops before its end."""
    stage.turns.may_end.clear()
    arguments = {"message": "hello", "wait_seconds": 0}
    made: dict[str, object] = await tasks.result("tools/call", name="ask_agent", arguments=arguments)
    return made


async def test_a_call_that_takes_long_becomes_a_task_with_the_id_of_its_run(stage: ApiStage, tasks: McpClient) -> None:
    made = await begin(stage, tasks)
    working = await tasks.result("tasks/get", taskId=made["taskId"])
    stage.turns.may_end.set()
    await tasks.values("get_run", run_id=made["taskId"])
    completed = await tasks.result("tasks/get", taskId=made["taskId"])

    assert (made["resultType"], made["status"], made["ttlMs"]) == ("task", "working", None)
    assert (working["resultType"], working["status"]) == ("complete", "working")
    assert "result" not in working
    assert completed["status"] == "completed"
    assert completed["result"]["content"][0]["text"] == "Hello back."
    assert completed["result"]["structuredContent"]["run_id"] == made["taskId"]


async def test_a_call_that_ends_in_time_is_no_task(tasks: McpClient) -> None:
    result = await tasks.call("ask_agent", message="hello")

    assert (result["resultType"], result["isError"]) == ("complete", False)


async def test_a_cancelled_task_is_seen_to_be(stage: ApiStage, tasks: McpClient) -> None:
    made = await begin(stage, tasks)
    acknowledged = await tasks.result("tasks/cancel", taskId=made["taskId"])
    await stage.turns.is_cancelled.wait()
    stage.turns.may_end.set()
    await tasks.refusal("get_run", run_id=made["taskId"])
    cancelled = await tasks.result("tasks/get", taskId=made["taskId"])
    again = await tasks.result("tasks/cancel", taskId=made["taskId"])

    assert acknowledged["resultType"] == again["resultType"] == "complete"
    assert "taskId" not in acknowledged
    assert cancelled["status"] == "cancelled"


async def test_a_failed_turn_is_a_completed_task_with_an_error(stage: ApiStage, tasks: McpClient) -> None:
    stage.turns.error = RunError("model_rejected", "The model refused the request.")
    made = await begin(stage, tasks)
    stage.turns.may_end.set()
    await tasks.refusal("get_run", run_id=made["taskId"])
    task = await tasks.result("tasks/get", taskId=made["taskId"])

    assert task["status"] == "completed"
    assert task["result"]["isError"]


async def test_an_update_of_a_task_is_acknowledged(stage: ApiStage, tasks: McpClient) -> None:
    made = await begin(stage, tasks)

    assert (await tasks.result("tasks/update", taskId=made["taskId"], inputResponses={}))["resultType"] == "complete"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_unknown_tasks_and_clients_without_tasks_are_refused(
    client: McpClient, tasks: McpClient, method: str
) -> None:
    unknown = await tasks.error(method, taskId="00000000-0000-0000-0000-000000000007")
    nonsense = await tasks.error(method, taskId="nonsense")
    undeclared = await client.send(method, taskId="nonsense")

    assert (unknown["code"], nonsense["code"]) == (-32602, -32602)
    assert undeclared.status_code == 400
    assert undeclared.json()["error"]["code"] == -32021
    assert undeclared.json()["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_a_client_without_tasks_is_given_the_state_of_a_turn(stage: ApiStage, client: McpClient) -> None:
    stage.turns.may_end.clear()

    result = await client.call("ask_agent", message="hello", wait_seconds=0)

    assert (result["resultType"], result["structuredContent"]["status"]) == ("complete", "running")
