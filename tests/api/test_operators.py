"""Routes for operators: who may use them, and what they tell of the whole service."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest

from api.test_isolation import OF_OPERATORS
from fakes.access_tokens import UNKNOWN, Owned
from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from fakes.conversations import claim_next
from fakes.raw_sql import run_sql
from fakes.scripted_turns import CLAIMER
from throughline.db.database import Database
from throughline.db.runs.all_runs import MOST_SKEW, AllRunsQuery, select_runs
from throughline.domain.keys import Scope
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.domain.run import Outcome, RunError, RunStatus, user_message
from throughline.domain.service_status import AgentFileError
from throughline.domain.tool import AwaitedCall, NewWait, WaitKind


@pytest.fixture
def keyed(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


async def test_other_keys_are_refused_with_the_name_of_the_scope(keyed: ApiStage, subtests: pytest.Subtests) -> None:
    key = await keyed.key("bob", Scope.READ, Scope.WRITE, Scope.ACT_AS)
    async with keyed.client(key=key) as client:
        for method, template in sorted(OF_OPERATORS):
            with subtests.test(f"{method} {template}"):
                refused = await client.request(method, Owned(UNKNOWN, UNKNOWN).path(template))

                assert refused.status_code == httpx.codes.FORBIDDEN
                assert refused.json()["type"] == "/problems/not_allowed"
                assert "scope `operate`" in refused.json()["detail"]


async def test_the_status_tells_of_the_turns_of_all_users(keyed: ApiStage) -> None:
    keyed.turns.has_worker = False
    async with keyed.client(key=await keyed.key("ada")) as ada:
        session = (await ada.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        queued = {"Prefer": "respond-async"}
        await ada.post(f"/v1/sessions/{session}/messages", json={"content": "hi"}, headers=queued)
    async with keyed.client(key=await keyed.key("bob", Scope.OPERATE)) as operator:
        found = (await operator.get("/v1/status")).json()

    assert found["queued"]["waiting"] + sum(held["runs"] for held in found["held"]) == 1
    assert set(found) == {
        "database",
        "schema",
        "is_stuck",
        "processes",
        "queued",
        "held",
        "jobs",
        "slack",
        "breakers",
        "agent_files",
        "tool_servers",
        "replica",
    }


async def test_operators_alone_read_which_files_the_agents_come_from(keyed: ApiStage) -> None:
    agents, at = keyed.services.agents, datetime(2026, 5, 4, 12, tzinfo=UTC)
    agents.replace_all(agents.all(), {"assistant": "ours.yaml"}, at)
    async with keyed.client(key=await keyed.key("bob", Scope.OPERATE)) as operator:
        in_use = (await operator.get("/v1/status")).json()["agent_files"]
        agents.refuse([AgentFileError("new.yaml", "name: missing; write it")], at)
        refused = (await operator.get("/v1/status")).json()["agent_files"]
    async with keyed.client(key=await keyed.key("ada")) as ada:
        told = (await ada.get("/v1/agents")).text

    assert in_use["agents"][0] == {"agent": "assistant", "file": "ours.yaml", "read_at": at.isoformat()}
    assert {one["file"] for one in in_use["agents"][1:]} == {None}
    assert in_use["refused"] is None
    assert refused["agents"] == in_use["agents"]
    assert refused["refused"] == {
        "at": at.isoformat(),
        "errors": [{"file": "new.yaml", "detail": "name: missing; write it"}],
    }
    assert "ours.yaml" not in told


async def test_without_keys_the_local_user_reads_the_status(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/status")).status_code == httpx.codes.OK


QUEUED = {"Prefer": "respond-async"}


async def send(client: httpx.AsyncClient, session: str) -> str:
    """Send a message and return the id of its run."""
    sent = await client.post(f"{session}/messages", json={"content": "my secret"}, headers=QUEUED)
    assert sent.status_code == httpx.codes.ACCEPTED, sent.text
    return str(sent.json()["run"]["id"])


async def listed(client: httpx.AsyncClient, **query: object) -> list[dict[str, object]]:
    found = await client.get("/v1/runs", params={name: str(value) for name, value in query.items()})
    assert found.status_code == httpx.codes.OK, found.text
    runs: list[dict[str, object]] = found.json()["data"]
    return runs


async def test_runs_of_all_users_are_listed_newest_first_page_by_page(keyed: ApiStage) -> None:
    sent = []
    for name in ("ada", "bob", "ada"):
        async with keyed.client(key=await keyed.key(name)) as client:
            sent.append((await send(client, await open_session(client)), name))
    await keyed.turns.settle()
    async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
        first = (await operator.get("/v1/runs", params={"limit": 2})).json()
        second = (await operator.get("/v1/runs", params={"limit": 2, "cursor": first["next_cursor"]})).json()

    found = [*first["data"], *second["data"]]
    assert [(run["id"], run["owner"]) for run in found] == sent[::-1]
    assert (len(first["data"]), second["next_cursor"]) == (2, None)
    assert "my secret" not in json.dumps(found)


async def test_runs_are_filtered_by_state_and_session(keyed: ApiStage) -> None:
    keyed.turns.has_worker = False
    async with keyed.client(key=await keyed.key("ada")) as ada:
        kept, other = await open_session(ada), await open_session(ada)
        queued, cancelled = await send(ada, kept), await send(ada, other)
        await ada.post(f"/v1/runs/{cancelled}/cancel")
    session = kept.rpartition("/")[2]
    async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
        by_state = {status: await listed(operator, status=status) for status in RunStatus}
        of_session = await listed(operator, session_id=session)
        of_both = await listed(operator, session_id=session, status="cancelled")

    assert {status.value: [run["id"] for run in runs] for status, runs in by_state.items() if runs} == {
        "queued": [queued],
        "cancelled": [cancelled],
    }
    assert ([run["id"] for run in of_session], of_both) == ([queued], [])


async def test_a_running_run_names_its_worker_and_a_waiting_one_what_it_waits_for(keyed: ApiStage) -> None:
    keyed.turns.has_worker = False
    async with keyed.client(key=await keyed.key("ada")) as ada:
        run = await send(ada, await open_session(ada))
    claimed = await claim_next(keyed.database.runs, replace(CLAIMER, lease_seconds=30.0))
    assert claimed is not None
    call, lease = ToolCall("call_1", "send_mail", '{"to": "my secret"}'), claimed.lease
    asked = NewMessage(role=Role.ASSISTANT, content="", source=Source.API, tool_calls=(call,))
    async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
        [running] = await listed(operator, status="running")
        await keyed.database.messages.append_message(lease, "user", user_message(claimed.run))
        stored = await keyed.database.messages.append_message(lease, "model-1", asked)
        until = datetime.now(UTC) + timedelta(minutes=1)
        wait = NewWait((AwaitedCall(call, WaitKind.APPROVAL),), stored.id, until)
        await keyed.database.runs.finish(lease, Outcome(RunStatus.WAITING, wait=wait), (), claimed.next_event)
        [waiting] = await listed(operator, status="waiting")

    left, awaited = running["lease_seconds"], waiting["waiting_for"]
    assert (running["id"], running["worker"]) == (run, CLAIMER.worker)
    assert isinstance(left, float)
    assert 0 < left <= 30
    assert (waiting["worker"], waiting["lease_seconds"]) == (None, None)
    assert isinstance(awaited, dict)
    assert awaited["calls"] == [{"id": "call_1", "name": "send_mail", "kind": "approval"}]


async def test_a_failed_run_is_listed_with_cause_and_remedy(keyed: ApiStage) -> None:
    keyed.turns.error = RunError("model_rate_limited", "Too many requests.", "slow down")
    async with keyed.client(key=await keyed.key("ada")) as ada:
        session = await open_session(ada)
        await ada.post(f"{session}/messages", json={"content": "my secret"})
    async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
        [failed] = await listed(operator, status="failed")

    error = failed["error"]
    assert isinstance(error, dict)
    told = (error["type"], error["detail"], error["provider_message"])
    assert told == ("model_rate_limited", "Too many requests.", "slow down")
    assert error["cause"]
    assert error["remedy"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=done", "status"),
        ("session_id=7", "session_id"),
        ("cursor=next", "cursor"),
        ("cursor=99999999999999999999", "cursor"),
        ("limit=0", "limit"),
        ("since=yesterday", "since"),
        ("until=2026-05-04T12:00", "until"),
        ("since=2026-05-04T12:00Z&until=2026-05-04T12:00Z", "since"),
        ("offset=3", "offset"),
    ],
)
async def test_a_wrong_filter_is_named(client: httpx.AsyncClient, query: str, field: str) -> None:
    refused = await client.get(f"/v1/runs?{query}")

    assert refused.json()["type"] == "/problems/invalid_input"
    assert [error["field"] for error in refused.json()["errors"]] == [field]


async def test_an_operator_cancels_a_run_of_another_user(keyed: ApiStage) -> None:
    keyed.turns.has_worker = False
    async with keyed.client(key=await keyed.key("ada")) as ada:
        run = await send(ada, await open_session(ada))
        async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
            cancelled = await operator.post(f"/v1/runs/{run}/cancel")
            unknown = await operator.post(f"/v1/runs/{UNKNOWN}/cancel")
        seen = (await ada.get(f"/v1/runs/{run}")).json()

    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert unknown.status_code == httpx.codes.NOT_FOUND
    assert (seen["status"], seen["author"], seen["actor"]) == ("cancelled", "ada", None)


async def test_an_operator_who_acts_for_a_user_cancels_only_that_users_runs(keyed: ApiStage) -> None:
    keyed.turns.has_worker = False
    key = await keyed.key("backend", Scope.WRITE, Scope.ACT_AS, Scope.OPERATE)
    reading = await keyed.key("backend", Scope.ACT_AS, Scope.OPERATE)
    async with keyed.client(key=await keyed.key("ada")) as ada:
        run = await send(ada, await open_session(ada))
    answers = []
    for secret, user in ((key, "bob"), (reading, "ada"), (key, "ada")):
        async with keyed.client(key=secret, user=user) as client:
            answers.append((await client.post(f"/v1/runs/{run}/cancel")).status_code)

    assert answers == [404, 403, 200]


async def store_runs(database_url: str, count: int) -> None:
    """Store copies of a run: one for each of the last minutes. Every hundredth has failed."""
    await run_sql(
        database_url,
        """
            insert into runs (id, session_id, owner_id, agent, status, input, source, finished_at, created_at)
            select cast(lpad(to_hex((extract(epoch from t) * 1000)::int8), 12, '0') || lpad(n::text, 20, '7') as uuid),
                r.session_id, r.owner_id, r.agent, case n % 100 when 0 then 'failed' else 'succeeded' end, r.input,
                r.source, t, t
            from (select * from runs limit 1) r,
                (select n, now() - n * interval '1 minute' as t from generate_series(1, $1) n order by n desc) m
        """,
        count,
    )


async def test_runs_are_filtered_by_their_time(keyed: ApiStage, database_url: str) -> None:
    async with keyed.client(key=await keyed.key("ada")) as ada:
        session = await open_session(ada)
        await ada.post(f"{session}/messages", json={"content": "hi"})
    await store_runs(database_url, 50)
    async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
        stored = await listed(operator, until="9999-12-31T23:59:59Z", since="0001-01-01T00:00Z")
        newer, older = str(stored[20]["created_at"]), str(stored[30]["created_at"])
        found = {
            "since": await listed(operator, since=newer),
            "until": await listed(operator, until=newer, limit=200),
            "both": await listed(operator, since=older, until=newer),
            "session": await listed(operator, since=older, until=newer, session_id=session.rpartition("/")[2]),
            "next page": await listed(operator, since=older, until=newer, limit=3, cursor=30),
            "later": await listed(operator, since="2999-05-04T13:00Z"),
        }

    assert len(stored) == 50
    assert found["since"] == stored[:21]
    assert found["until"][:29] == stored[21:]
    assert found["both"] == found["session"] == stored[21:31]
    assert found["next page"] == stored[22:25]
    assert found["later"] == []


@pytest.mark.parametrize(("filtered", "place", "sign"), [("since", 0, -1), ("until", 48, 1)])
async def test_a_run_with_an_id_of_a_wrong_clock_hides_no_others(
    keyed: ApiStage, database_url: str, filtered: str, place: int, sign: int
) -> None:
    async with keyed.client(key=await keyed.key("ada")) as ada:
        await ada.post(f"{await open_session(ada)}/messages", json={"content": "hi"})
    await store_runs(database_url, 49)
    async with keyed.client(key=await keyed.key("ops", Scope.OPERATE)) as operator:
        stored = await listed(operator)
        asked = datetime.fromisoformat(str(stored[20]["created_at"])) + sign * timedelta(seconds=30)
        await run_sql(
            database_url,
            """
                update runs set id = cast(
                    lpad(to_hex((extract(epoch from $2::timestamptz) * 1000)::int8), 12, '0') || lpad('1', 20, '7')
                    as uuid
                ) where id = $1
            """,
            UUID(str(stored[place]["id"])),
            asked + sign * (MOST_SKEW + timedelta(seconds=15)),
        )
        found = await listed(operator, **{filtered: asked.isoformat()})

    expected = stored[:21] if filtered == "since" else stored[20:49]
    assert [run["created_at"] for run in found if run["id"] != stored[49]["id"]] == [
        run["created_at"] for run in expected
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_of_session", [False, True])
@pytest.mark.parametrize("has_times", [False, True])
async def test_a_page_reads_no_more_than_its_runs(
    keyed: ApiStage, database_url: str, *, is_of_session: bool, has_times: bool
) -> None:
    async with keyed.client(key=await keyed.key("ada")) as ada:
        session = await open_session(ada)
        await ada.post(f"{session}/messages", json={"content": "hi"})
    await store_runs(database_url, 20_000)
    await run_sql(database_url, "vacuum analyze runs")
    until = datetime.now(UTC) - timedelta(minutes=15_000)
    query = AllRunsQuery(session_id=UUID(session.rpartition("/")[2]) if is_of_session else None)
    query = replace(query, since=until - timedelta(hours=10), until=until) if has_times else query
    page, asked = select_runs(query)

    plan = await run_sql(database_url, f"explain (analyze, buffers, format json) {page.text}", *page.arguments(asked))
    top = json.loads(str(plan[0][0]))[0]["Plan"]

    assert top["Actual Rows"] == 51
    assert int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"]) < 400
