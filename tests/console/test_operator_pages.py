"""The pages for operators and the page of costs: what they show, and to whom."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import httpx
import pytest

from console.chats import open_chat
from fakes.api_stage import LOCAL, ApiStage
from fakes.raw_sql import run_sql
from throughline.agents.definition import AgentDefinition, DailyBudget
from throughline.api.front_end import API
from throughline.console.costs import BudgetRow, cost_rows
from throughline.console.front_end import CONSOLE
from throughline.console.operate import LISTED
from throughline.console.page import GERMAN
from throughline.domain.keys import Scope
from throughline.domain.prompt import Usage
from throughline.domain.service_status import AgentFileError, ProcessKind, ServiceStatus
from throughline.domain.tool import WaitKind
from throughline.domain.tool_server import ListChange, ServerReport, ServerState
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer, UsageGroup, UsageKey
from throughline.http.app import create_app

ADDRESSES = ("operate", "operate/runs", "operate/runs?status=failed", "operate/keys")
HOSTILE = "<script>alert(1)</script>"


async def test_operators_see_state_runs_and_keys_of_all_users(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("anna")) as anna:
        session_id = await open_chat(anna)
        await anna.post(f"/v1/sessions/{session_id}/messages", json={"content": HOSTILE})
    async with keyed.client(key=await keyed.key(HOSTILE, Scope.READ, Scope.OPERATE)) as operator:
        pages = {address: await operator.get(f"/console/{address}") for address in ADDRESSES}

    assert {page.status_code for page in pages.values()} == {200}
    assert "anna" in pages["operate/runs"].text
    assert "anna" in pages["operate/keys"].text
    assert "anna" not in pages["operate/runs?status=failed"].text
    assert all("alert(1)</script>" not in page.text for page in pages.values())


async def test_agents_are_shown_with_their_files_and_what_is_wrong_with_those(stage: ApiStage) -> None:
    agents, at = stage.services.agents, datetime(2026, 5, 4, 12, tzinfo=UTC)
    agents.replace_all(agents.all(), {"assistant": "ours.yaml"}, at)
    async with stage.client() as client:
        in_use = (await client.get("/console/operate")).text
        agents.refuse([AgentFileError("new.yaml", HOSTILE), AgentFileError(None, "agent writer: no model")], at)
        refused = (await client.get("/console/operate")).text

    assert "<code>ours.yaml</code>" in in_use
    assert "built in" in in_use
    assert "2026-05-04 12:00" in in_use
    assert 'role="alert"' not in in_use
    assert "<code>new.yaml</code>: &lt;script&gt;" in refused
    assert "agent writer: no model" in refused


async def test_servers_of_tools_are_shown_with_what_is_wrong_with_them(stage: ApiStage) -> None:
    reports = (
        ServerReport("files", ServerState.CONNECTED, ("one",), tools=12, last_change=ListChange(2, 1, 0, 5.0)),
        ServerReport("mail", ServerState.FAILED, ("one",), reason=HOSTILE, problems=("it is odd",)),
    )
    read = stage.services.read_status

    async def read_status() -> ServiceStatus:
        return replace(await read(), tool_servers=reports)

    services = replace(stage.services, read_status=read_status)
    told = replace(stage, app=create_app(services, LOCAL, (API, CONSOLE)))
    async with told.client() as client:
        page = (await client.get("/console/operate")).text

    assert "2 new, 1 gone, 0 different" in page
    assert '<td class="bad">failed</td>' in page
    assert "<div>&lt;script&gt;" in page
    assert "it is odd" in page


async def test_runs_are_filtered_by_time_and_state_on_each_page(stage: ApiStage, database_url: str) -> None:
    async with stage.client() as client:
        session_id = await open_chat(client)
        for _ in range(LISTED + 1):
            await client.post(f"/v1/sessions/{session_id}/messages", json={"content": "hi"})
        await run_sql(database_url, "update runs set created_at = now() - interval '2 hours' where seq = 1")
        hour = (await client.get("/console/operate/runs?last=hour&status=succeeded")).text
        day = (await client.get("/console/operate/runs?last=day&status=succeeded")).text
        wrong = await client.get("/console/operate/runs?last=year")

    assert (hour.count('class="state succeeded"'), "cursor=" in hour) == (LISTED, False)
    assert 'href="operate/runs?status=failed&amp;last=hour"' in hour
    assert 'href="operate/runs?status=succeeded&amp;last=day&amp;cursor=2"' in day
    assert wrong.status_code == 422


async def test_others_do_not_see_them(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("anna")) as anna:
        for address in ADDRESSES:
            assert (await anna.get(f"/console/{address}")).status_code == 403
        costs = await anna.get("/console/costs")

    assert "Your costs" in costs.text
    assert 'href="operate"' not in costs.text


async def test_the_person_of_a_local_service_operates_it(client: httpx.AsyncClient) -> None:
    page = await client.get("/console/operate/keys")

    assert 'href="operate"' in page.text
    assert "throughline keys create" in page.text
    assert "data-shows" not in page.text
    assert "Costs of all users" in (await client.get("/console/costs?by=user&days=30")).text


async def test_groups_of_costs_are_named_in_german(stage: ApiStage) -> None:
    await spend(stage, "anna")
    async with stage.client() as client:
        page = (await client.get("/console/costs?by=purpose", headers={"Accept-Language": "de"})).text

    assert '<option value="purpose" selected>Zweck</option>' in page
    assert '<th scope="col">Zweck</th>' in page
    assert '<th scope="row">Antwort</th>' in page


def test_kinds_and_purposes_have_german_names() -> None:
    assert {*ProcessKind, *CallPurpose, *UsageKey, *WaitKind, *ServerState} <= GERMAN.keys()


@pytest.mark.parametrize("query", ["by=colour", "days=0", "days=x"])
async def test_a_wrong_question_about_costs_is_refused(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"/console/costs?{query}")).status_code == 422


def group(name: str, cost: str | None, tokens: int) -> UsageGroup:
    usage = Usage(input_tokens=tokens, output_tokens=0, cost_usd=None if cost is None else Decimal(cost))
    return UsageGroup({UsageKey.USER: name}, 1, 0, usage)


def test_bars_compare_costs_or_tokens_if_no_cost_is_known() -> None:
    priced = cost_rows([group("a", "1.00", 9), group("b", "4.00", 1), group("c", None, 99)], UsageKey.USER)
    free = cost_rows([group("a", None, 10), group("b", None, 40)], UsageKey.USER)

    assert [(row.name, row.length) for row in priced] == [("b", 100.0), ("a", 25.0), ("c", 0.0)]
    assert [(row.name, row.length) for row in free] == [("b", 100.0), ("a", 25.0)]
    assert cost_rows([], UsageKey.DAY) == []


@pytest.mark.parametrize(("spent", "percent", "length"), [(0.0, 0.0, 0.0), (1.0, 25.0, 25.0), (8.0, 200.0, 100.0)])
def test_a_bar_of_a_budget_ends_at_its_limit(spent: float, percent: float, length: float) -> None:
    row = BudgetRow("ada", "writer", spent, 4.0, is_usd=True)

    assert (row.percent, row.length) == (percent, length)


def limited(name: str, budget: DailyBudget) -> AgentDefinition:
    return AgentDefinition(name, daily_budget=budget)


async def spend(stage: ApiStage, name: str) -> None:
    """Store a call of a user with the agent `assistant`: 2 dollars, 60 tokens."""
    owner_id = await stage.database.users.get_or_create(name)
    call = ModelCall("openai:m", CallPurpose.ANSWER, Usage(input_tokens=50, output_tokens=10, cost_usd=Decimal(2)))
    await stage.database.usage.store_calls(Payer(owner_id, agent="assistant"), [call])


async def test_budgets_are_shown_beside_costs(keyed: ApiStage) -> None:
    await spend(keyed, "anna")
    await spend(keyed, "bob")
    async with keyed.client(key=await keyed.key("anna")) as anna:
        without = (await anna.get("/console/costs")).text
        keyed.services.agents.replace_all([limited("assistant", DailyBudget(usd=8.0, tokens=50))])
        own = (await anna.get("/console/costs")).text
    async with keyed.client(key=await keyed.key("ops", Scope.READ, Scope.OPERATE)) as operator:
        unspent = (await operator.get("/console/costs")).text
        of_all = (await operator.get("/console/costs?by=user")).text

    assert "budget" not in without
    assert "bob" not in own
    for text in (
        "$8.0000",
        "$2.0000",
        "25 %",
        "50 tokens",
        "60 tokens",
        "120 %",
    ):
        assert text in own
    assert ("Your daily budgets" in unspent, "0 %" in unspent) == (True, True)
    assert 'th scope="row">bob</th><td>assistant</td>' in of_all
    assert "Daily budgets of all users" in of_all
