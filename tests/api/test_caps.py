"""Caps at the door: 429 with the cap, its number and when to come again."""

import pytest

from fakes.api_stage import LOCAL, open_session, set_stage
from fakes.pooler import urls_of
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import SummaryLimitReached
from throughline.domain.run import Caps
from throughline.http.problem_documents import error_problem

ASYNC = {"Prefer": "respond-async"}


@pytest.mark.parametrize(
    ("caps", "code", "cap"),
    [
        (Caps(queued_per_session=2), "queue_full", "max_queued_per_session"),
        (Caps(queued_per_owner=2), "owner_queue_full", "max_queued_per_owner"),
    ],
    ids=["of a session", "of a user"],
)
async def test_one_message_too_many_is_told_which_cap_it_met(
    database_url: str, caps: Caps, code: str, cap: str
) -> None:
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    stage = set_stage(database, LOCAL)
    stage.turns.has_worker = False

    async with stage.served() as client:
        path = f"{await open_session(client)}/messages"
        sent = [await client.post(path, json={"content": "hi"}, headers=ASYNC) for _ in range(3)]
    await database.close()

    refused = sent[-1]
    assert [response.status_code for response in sent] == [202, 202, 429]
    assert (refused.json()["type"], refused.json()["cap"], refused.json()["limit"]) == (f"/problems/{code}", cap, 2)
    assert int(refused.headers["retry-after"]) >= 1
    assert cap.upper() in refused.json()["detail"]


def test_one_summary_on_demand_too_many_is_told_as_the_users_own_limit() -> None:
    refused = error_problem(SummaryLimitReached("You have as many as one user may have (4)."))

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
