"""Erasing a user leaves nothing of them, reports what went, and touches nobody else."""

import pytest

from db.test_redacted_quotations import tables_with
from fakes.api_stage import set_stage
from fakes.conversations import open_conversation
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.basic_types import UserId
from throughline.domain.errors import NotFound
from throughline.domain.keys import ErasedUser, NewKey, NewToken, Scope
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.http.services import ApiConfig

NAME = "anna tangelo42"
WORD = "tangelo42"  # stands in everything that has to go
BOTH = frozenset({Scope.READ, Scope.WRITE})


async def furnish(database: Database, url: str) -> UserId:
    """Store something of every kind for the user; return its id."""
    conversation = await open_conversation(database, NAME, title=WORD)
    await conversation.say(f"I am {WORD}", "two")
    await conversation.start(f"more of {WORD}")  # is running
    await open_conversation(database, NAME)
    user_id = conversation.owner_id
    await database.memories.create(user_id, f"knows {WORD}", {})
    await database.history.index_session(conversation.session.id)
    key = await database.keys.create(NewKey(NAME, WORD, BOTH))
    await database.access_tokens.create(NewToken(key.id, user_id, BOTH, None, 900))
    paid = ModelCall("m", CallPurpose.ANSWER, Usage(input_tokens=7, output_tokens=1))
    await database.usage.store_calls(Payer(user_id, conversation.session.id, None, "assistant"), [paid])
    await run_sql(
        url,
        "insert into slack_users (team_id, slack_user_id, user_id, display_name) values ('T', 'U', $1, $2)",
        user_id,
        WORD,
    )
    await run_sql(
        url,
        "insert into slack_link_codes (code_hash, user_id, expires_at) values ('x', $1, now() + interval '1 hour')",
        user_id,
    )
    return user_id


async def test_nothing_of_an_erased_user_is_left(database: Database, database_url: str) -> None:
    user_id = await furnish(database, database_url)
    other = await open_conversation(database, "bob")
    await other.say("mine")
    await run_sql(
        database_url,
        "insert into slack_participants (session_id, team_id, slack_user_id) values ($1, 'T', 'U')",
        other.session.id,
    )

    erased = await database.user_erasure.erase(NAME)

    assert erased == ErasedUser(
        name=NAME,
        sessions=2,
        messages=2,
        runs=2,
        memories=1,
        keys=1,
        access_tokens=1,
        slack_people=1,
        model_calls=1,
        keeps_costs=True,
        shared_sessions=(other.session.id,),
    )
    assert await tables_with(database_url, WORD) == []
    assert await tables_with(database_url, str(user_id)) == []
    assert [message.content for message in await other.messages()] == ["mine"]
    assert await run_sql(database_url, "select input_tokens, owner_id from model_calls") == [(7, None)]


async def test_costs_of_an_erased_user_go_if_the_setting_says_so(database: Database, database_url: str) -> None:
    await furnish(database, database_url)
    deleting = Database(DatabaseConfig(**urls_of(database_url), keeps_costs_of_erased_users=False))

    erased = await deleting.user_erasure.erase(NAME)
    await deleting.close()

    assert (erased.model_calls, erased.keeps_costs) == (1, False)
    assert await run_sql(database_url, "select from model_calls") == []


async def test_a_service_whose_only_key_was_erased_still_requires_a_key(database: Database, database_url: str) -> None:
    await furnish(database, database_url)
    (key,) = await database.keys.list()

    await database.user_erasure.erase(NAME)

    assert await database.keys.any_exists()
    assert await database.keys.list() == ()
    assert await run_sql(database_url, "select prefix from api_keys where revoked_at is not null") == [(key.prefix,)]


async def test_a_missing_user_is_named(database: Database) -> None:
    with pytest.raises(NotFound, match="There is no user 'nobody'"):
        await database.user_erasure.erase("nobody")


async def test_a_user_may_be_created_again_under_the_same_name(database: Database, database_url: str) -> None:
    user_id = await furnish(database, database_url)
    await database.user_erasure.erase(NAME)

    assert await database.users.get_or_create(NAME) != user_id


async def test_a_message_for_an_erased_owner_is_not_found(database: Database) -> None:
    conversation = await open_conversation(database, NAME)
    await database.user_erasure.erase(NAME)

    with pytest.raises(NotFound):
        await conversation.submit("late")
    with pytest.raises(NotFound, match="erased meanwhile"):
        await database.memories.create(conversation.owner_id, "late", {})


KEYED = ApiConfig(version="0", key_cache_seconds=60)


async def test_a_key_erases_its_own_user_and_ends_with_it(database: Database) -> None:
    key = await database.keys.create(NewKey("a/b c", "", BOTH))
    await open_conversation(database, "a/b c")
    async with set_stage(database, KEYED).client() as client:
        client.headers["Authorization"] = f"Bearer {key.secret}"
        refused = await client.delete("/v1/users/bob")
        erased = await client.delete("/v1/users/a%2Fb%20c")
        after = await client.get("/v1/sessions")

    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/not_allowed")
    assert (erased.status_code, erased.json()["sessions"], erased.json()["name"]) == (200, 1, "a/b c")
    assert after.status_code == 401


async def test_a_key_that_acts_for_users_erases_the_one_it_names(database: Database) -> None:
    key = await database.keys.create(NewKey("web", "", BOTH | {Scope.ACT_AS}))
    await open_conversation(database, "anna")
    async with set_stage(database, KEYED).client() as client:
        client.headers["Authorization"] = f"Bearer {key.secret}"
        anna = {"On-Behalf-Of": "anna"}
        erased = await client.delete("/v1/users/anna", headers=anna)
        again = await client.post("/v1/sessions", json={"agent": "assistant"}, headers=anna)
        listed = await client.get("/v1/sessions", headers=anna)

    assert (erased.status_code, erased.json()["keys"]) == (200, 0)
    assert (again.status_code, len(listed.json()["data"])) == (201, 1)


async def test_the_local_user_begins_anew_after_its_erasure(database: Database) -> None:
    await open_conversation(database, "local")
    async with set_stage(database).client() as client:
        assert (await client.delete("/v1/users/local")).json()["sessions"] == 1

        assert (await client.post("/v1/sessions", json={"agent": "assistant"})).status_code == 201


async def test_costs_are_taken_in_portions(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_id = await furnish(database, database_url)
    monkeypatch.setattr("throughline.db.user_erasure.CALLS_AT_ONCE", 2)
    calls = [ModelCall("m", CallPurpose.ANSWER, Usage(input_tokens=1))] * 6
    await database.usage.store_calls(Payer(user_id, None, None, "assistant"), calls)

    assert (await database.user_erasure.erase(NAME)).model_calls == 7


async def test_deleting_a_row_searches_no_table_for_what_refers_to_it(database_url: str) -> None:
    unindexed = await run_sql(
        database_url,
        """
        select c.conrelid::regclass::text as name, a.attname from pg_constraint c
            join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
        where c.contype = 'f' and not exists (
            select 1 from pg_index i where i.indrelid = c.conrelid and i.indkey[0] = any(c.conkey)
                and coalesce(pg_get_expr(i.indpred, i.indrelid), '') in ('', format('(%s IS NOT NULL)', a.attname)))
        """,
    )

    assert {tuple(row) for row in unindexed} == {("slack_link_codes", "user_id")}  # which has few rows at a time
