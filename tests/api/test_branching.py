"""A branch: a new session with copies of the first messages of another one of its owner."""

import asyncio
from uuid import UUID

import httpx
import pytest

from api.test_isolation import CHANNEL, linked
from fakes.access_tokens import open_page
from fakes.api_stage import KEYED, set_stage
from fakes.conversations import Conversation, answer_message, open_conversation, user_message
from fakes.raw_sql import run_sql, tables_with
from fakes.slack_delivery import take
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.basic_types import SessionId
from throughline.domain.message import REDACTED_TEXT, ImageBlock, NewMessage, Role, Source, TextBlock, ToolCall

SECRET = "tangelo42"  # the word that has to go
KEY = {"Idempotency-Key": "k-1"}
EXPIRING = "update sessions set expires_at = now() + interval '60 s' where id = $1"
OF_THE_SESSION = ("id", "session_id", "run_id")
CALLS = (ToolCall("c1", "grep", "{}"), ToolCall("c2", "grep", "{}"))


def result(call_id: str) -> NewMessage:
    return NewMessage(Role.TOOL, f"result of {call_id}", Source.WORKER, tool_call_id=call_id, name="grep")


WITH_CALLS = (
    user_message("Where is it?"),
    answer_message("", tool_calls=CALLS),
    result("c1"),
    result("c2"),
    answer_message("In the shed."),
)


async def say(conversation: Conversation, turns: int) -> None:
    for turn in range(turns):
        await conversation.store(user_message(f"question {turn}"), answer_message(f"answer {turn}"))


async def branch(client: httpx.AsyncClient, talk: Conversation, at: object, **body: object) -> httpx.Response:
    return await client.post(f"/v1/sessions/{talk.session.id}/branch", json={"at": at, **body})


async def made(client: httpx.AsyncClient, talk: Conversation, at: int, **body: object) -> dict[str, object]:
    """Branch the session and return the new one."""
    answer = await branch(client, talk, at, **body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/sessions/{answer.json()['id']}"
    return dict(answer.json())


async def messages_of(client: httpx.AsyncClient, session_id: object) -> list[dict[str, object]]:
    listed = (await client.get(f"/v1/sessions/{session_id}/messages", params={"limit": 200})).json()["data"]
    return [{name: value for name, value in item.items() if name not in OF_THE_SESSION} for item in listed]


async def test_a_branch_has_copies_of_the_first_messages_and_what_the_session_has(
    client: httpx.AsyncClient, database: Database
) -> None:
    talk = await open_conversation(database, "local", title="The index")
    parts = (TextBlock("See"), ImageBlock("https://example.org/a.png", "low"))
    stored = await talk.store(NewMessage(Role.USER, parts, Source.WEB, author="anna"), *WITH_CALLS[1:])
    await say(talk, 1)
    await talk.pin(stored[0], (await talk.messages())[6])
    change = SessionChange(metadata={"a": 1}, summary_instructions="Keep names.", external_id="mine", archived=True)
    await database.sessions.update(talk.owner_id, talk.session.id, change)

    session = await made(client, talk, 5)

    before, after = [await messages_of(client, one) for one in (talk.session.id, session["id"])]
    assert after == before[:5]
    assert [one["pinned"] for one in after] == [True, False, False, False, False]
    assert {name: session[name] for name in ("agent", "title", "message_count", "source", "external_id")} == {
        "agent": "assistant",
        "title": "The index",
        "message_count": 5,
        "source": "api",
        "external_id": None,
    }
    assert session["metadata"] == {"a": 1, "branched_from": str(talk.session.id)}
    assert (session["summary_instructions"], session["archived"]) == ("Keep names.", False)
    assert (await client.get(f"/v1/sessions/{session['id']}")).json() == session


async def test_a_branch_goes_on_by_itself(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 2)
    session = await made(client, talk, 2, title="Again")

    sent = await client.post(f"/v1/sessions/{session['id']}/messages", json={"content": "other question"})

    assert (session["title"], sent.status_code) == ("Again", 200)
    assert [one["position"] for one in await messages_of(client, session["id"])] == [1, 2, 3, 4]
    assert (await talk.reload()).message_count == 4


async def test_a_branch_before_the_first_message_is_empty(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local", title="Kept")
    await say(talk, 1)

    session = await made(client, talk, 0)

    assert (session["message_count"], session["agent"], session["title"]) == (0, "assistant", "Kept")
    assert await messages_of(client, session["id"]) == []


async def test_a_title_of_a_message_that_is_not_copied_is_not_taken_over(
    client: httpx.AsyncClient, database: Database
) -> None:
    talk = await open_conversation(database, "local", title="My code is…")
    await talk.store(user_message(f"\n  My code is {SECRET}"), answer_message("Thanks"))

    assert [(await made(client, talk, at))["title"] for at in (0, 1, 2)] == ["", "My code is…", "My code is…"]


async def test_hundreds_of_messages_are_copied_in_order(
    client: httpx.AsyncClient, database: Database, database_url: str
) -> None:
    talk = await open_conversation(database, "local")
    await database.sessions.append(
        talk.owner_id, talk.session.id, [user_message(f"text {n}", tokens=2) for n in range(1, 1301)]
    )

    session = await made(client, talk, 1201)

    rows = "select position, content from messages where session_id = $1 order by position"
    assert await run_sql(database_url, rows, session["id"]) == [(n, f"text {n}") for n in range(1, 1202)]
    counts = "select message_count, message_tokens, unindexed_since is not null from sessions where id = $1"
    assert await run_sql(database_url, counts, session["id"]) == [(1201, 2402, True)]
    links = "select count(*) from message_copies where original_session_id = $1 and not is_kept"
    assert await run_sql(database_url, links, talk.session.id) == [(1201,)]


@pytest.mark.parametrize("at", [-1, 1.5, "2", None, 2**31])
async def test_a_position_that_is_none_is_refused(client: httpx.AsyncClient, database: Database, at: object) -> None:
    talk = await open_conversation(database, "local")

    answer = await branch(client, talk, at)

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "at")


async def test_a_position_beyond_the_last_message_is_refused(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 1)

    answer = await branch(client, talk, 3)

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "at")
    assert "`at` is at most 2" in answer.json()["detail"]
    assert len((await client.get("/v1/sessions")).json()["data"]) == 1


async def test_a_call_and_its_results_are_not_separated(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 1)
    await talk.store(*WITH_CALLS)

    answers = [await branch(client, talk, at) for at in range(1, 8)]

    assert [answer.status_code for answer in answers] == [201, 201, 201, 422, 422, 201, 201]
    assert answers[3].json()["errors"][0]["field"] == "at"
    assert all("Branch at 3 or at 6." in answer.json()["detail"] for answer in answers[3:5])


async def test_messages_of_an_unfinished_turn_are_not_copied(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 1)
    claimed = await talk.start()
    await database.messages.append_message(claimed.lease, "user", user_message("And now?"))

    before, within = await branch(client, talk, 2), await branch(client, talk, 3)
    await talk.end(claimed.lease, "Now.")
    after = await branch(client, talk, 3)

    assert (before.status_code, within.status_code, after.status_code) == (201, 409, 201)
    assert (within.json()["type"], within.json()["run_id"]) == ("/problems/session_busy", str(claimed.run.id))
    assert "Branch at 2 or earlier" in within.json()["detail"]


async def test_a_queued_turn_is_in_no_branchs_way(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 1)
    await talk.submit("And now?")

    assert (await made(client, talk, 2))["message_count"] == 2


async def test_redaction_and_erasure_of_the_session_reach_its_branches(
    client: httpx.AsyncClient, database: Database, database_url: str
) -> None:
    talk = await open_conversation(database, "local", title=f"I have {SECRET}")
    await talk.store(user_message(f"I have {SECRET}"), answer_message("Thanks"))
    later = await talk.store(user_message("more"), answer_message(f"about {SECRET}"))
    await talk.adopt(later[0], f"The code is {SECRET}.")
    first = await made(client, talk, 4)
    copy = await database.sessions.get(talk.owner_id, SessionId(UUID(str(first["id"]))))
    second = await made(client, Conversation(database, talk.owner_id, copy), 1)
    assert "public.summary_versions" in await tables_with(database_url, SECRET)

    path = f"/v1/sessions/{talk.session.id}"
    redacted = await client.post(f"{path}/messages/{(await talk.messages())[0].id}/redact")
    texts = [(await messages_of(client, one["id"]))[0]["content"] for one in (first, second)]
    assert (await client.delete(path)).status_code == 204

    assert (redacted.json()["copies"], texts) == ([], [REDACTED_TEXT] * 2)
    assert await tables_with(database_url, SECRET) == []


async def test_the_newest_summary_of_copied_messages_is_the_branchs(
    client: httpx.AsyncClient, database: Database, database_url: str
) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 4)
    stored = await talk.messages()
    await talk.adopt(stored[1], "of two")
    await talk.adopt(stored[5], "of six")

    found = [await summary_of(client, await made(client, talk, at)) for at in (1, 2, 5, 6, 8)]

    assert found == [(0, []), (2, ["of two"]), (2, ["of two"]), (6, ["of six"]), (6, ["of six"])]
    costs = "select coalesce(sum(input_tokens + output_tokens), 0) from summaries where session_id <> $1"
    assert await run_sql(database_url, costs, talk.session.id) == [(0,)]


async def summary_of(client: httpx.AsyncClient, session: dict[str, object]) -> tuple[object, list[object]]:
    """Return how many messages the session's summary covers, and the texts of its versions."""
    listed = (await client.get(f"/v1/sessions/{session['id']}/summaries")).json()["data"]
    return session["summarized_count"], [version["text"] for version in listed]


async def test_a_summary_that_was_taken_out_of_use_is_not_in_use_in_a_branch(
    client: httpx.AsyncClient, database: Database
) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 2)
    await talk.adopt((await talk.messages())[1], "of two")
    restored = await client.post(f"/v1/sessions/{talk.session.id}/summaries/0/restore")
    assert restored.json()["summarized_count"] == 0

    assert await summary_of(client, await made(client, talk, 4)) == (0, [])


async def test_a_repeated_request_gets_the_same_branch(client: httpx.AsyncClient, database: Database) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 1)
    path = f"/v1/sessions/{talk.session.id}/branch"

    at_once = await asyncio.gather(*(client.post(path, json={"at": 2}, headers=KEY) for _ in range(5)))
    await say(talk, 1)
    again = await client.post(path, json={"at": 2}, headers=KEY)
    other = await client.post(path, json={"at": 1}, headers=KEY)

    answers = [*at_once, again]
    assert {answer.status_code for answer in answers} == {201}
    assert {answer.json()["message_count"] for answer in answers} == {2}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert again.headers["idempotency-replayed"] == "true"
    assert sum("idempotency-replayed" not in answer.headers for answer in at_once) == 1
    assert (other.status_code, other.json()["type"]) == (409, "/problems/idempotency_key_reused")


async def test_a_session_that_expires_has_branches_that_expire(
    client: httpx.AsyncClient, database: Database, database_url: str
) -> None:
    talk = await open_conversation(database, "local")
    await say(talk, 1)
    await run_sql(
        database_url,
        EXPIRING,
        talk.session.id,
    )

    session = await made(client, talk, 2)

    left = "select extract(epoch from expires_at - now()) between 1 and 60 from sessions where id = $1"
    assert await run_sql(database_url, left, session["id"]) == [(True,)]


async def test_a_participant_of_a_shared_session_may_not_branch_it(database: Database) -> None:
    shared = set_stage(database, KEYED)
    await linked(shared, "U0BERT001", "bert")
    session = await take(database, "hello", channel=CHANNEL, user="U0BERT001")
    async with shared.client(key=await shared.key("bert")) as bert:
        read = await bert.get(f"/v1/sessions/{session}")
        refused = await bert.post(f"/v1/sessions/{session}/branch", json={"at": 0})

    assert (read.status_code, refused.status_code) == (200, 404)


async def test_a_token_for_one_session_may_not_branch_it(database: Database) -> None:
    async with open_page(database) as page:
        answers: list[httpx.Response] = []
        for token in (await page.token(page.first), await page.token()):
            async with page.stage.client(key=token) as browser:
                answers.append(await browser.post(f"/v1/sessions/{page.first.session_id}/branch", json={"at": 1}))

    assert [answer.status_code for answer in answers] == [403, 201]
    assert "Send one for all sessions, or an API key." in answers[0].json()["detail"]
