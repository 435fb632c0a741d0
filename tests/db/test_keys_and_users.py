"""API keys and users, and what is learned of models."""

import asyncio
from uuid import UUID

import pytest

from fakes.api_stage import set_stage
from fakes.conversations import open_conversation
from fakes.pooler import urls_of
from fakes.raw_sql import hold_rows, run_sql, tables_with
from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage
from fakes.waiting import ManualClock
from throughline.assembly.front_ends import storages
from throughline.context.calibration import Calibration
from throughline.db.database import Database, DatabaseConfig
from throughline.db.retention import ROWS_AT_ONCE
from throughline.db.sessions.create import CreateOutcome
from throughline.domain.basic_types import UserId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.keys import ErasedUser, NewKey, NewToken, Scope
from throughline.domain.message import Source
from throughline.domain.prompt import Usage
from throughline.domain.run import Run
from throughline.domain.session import NewSession, Session
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.http.services import ApiConfig
from throughline.turn.worker.retention import Retention, RetentionConfig

READ_WRITE = frozenset({Scope.READ, Scope.WRITE})


async def test_a_key_opens_its_users_data_and_only_its_hash_is_stored(database: Database, database_url: str) -> None:
    created = await database.keys.create(NewKey("anna", "laptop", READ_WRITE))

    key = await database.keys.authenticate(created.secret)

    assert key is not None
    assert (key.id, key.user_id, key.user_name) == (created.id, await database.users.get("anna"), "anna")
    assert (key.name, key.scopes, key.prefix) == ("laptop", READ_WRITE, created.prefix)
    assert created.secret.startswith(f"tl_{created.prefix}_")
    assert len(created.secret) == len("tl_") + 8 + 1 + 43
    assert created.secret not in str(await run_sql(database_url, "select api_keys::text from api_keys"))


@pytest.mark.parametrize("secret", ["", "tl_", "wrong", "tl_aaaaaaaa_" + "A" * 43, "\x00", "\ud800", "ü" * 9999])
async def test_an_unknown_secret_opens_nothing(database: Database, secret: str) -> None:
    await database.keys.create(NewKey("anna", "", READ_WRITE))

    assert await database.keys.authenticate(secret) is None


async def test_a_key_may_have_every_scope(database: Database) -> None:
    created = await database.keys.create(NewKey("anna", "", frozenset(Scope)))

    key = await database.keys.authenticate(created.secret)

    assert key is not None
    assert key.scopes == frozenset(Scope)


async def test_a_revoked_key_opens_nothing_and_stays_listed(database: Database) -> None:
    first = await database.keys.create(NewKey("anna", "", READ_WRITE))
    second = await database.keys.create(NewKey("anna", "", READ_WRITE))

    assert await database.keys.revoke(first.prefix)
    assert await database.keys.revoke(str(second.id))
    assert not await database.keys.revoke(first.prefix)

    assert await database.keys.authenticate(first.secret) is None
    assert await database.keys.authenticate(second.secret) is None
    assert [key.revoked_at is None for key in await database.keys.list()] == [False, False]
    assert await database.keys.any_exists()


async def test_the_use_of_a_key_is_noted_at_most_once_a_minute(database: Database, database_url: str) -> None:
    created = await database.keys.create(NewKey("anna", "", READ_WRITE))
    await asyncio.gather(*(database.keys.authenticate(created.secret) for _ in range(5)))
    first = (await database.keys.list())[0].last_used_at
    await database.keys.authenticate(created.secret)

    assert first is not None
    assert (await database.keys.list())[0].last_used_at == first
    await run_sql(database_url, "update api_keys set last_used_at = now() - interval '2 minutes'")
    await database.keys.authenticate(created.secret)
    last = (await database.keys.list())[0].last_used_at
    assert last is not None
    assert last >= first


async def test_the_bootstrap_key_is_made_once_and_stays_revoked(database: Database) -> None:
    secret = "a-secret-from-the-environment"
    assert not await database.keys.any_exists()

    await database.keys.ensure(secret, "admin", frozenset(Scope))
    await database.keys.ensure(secret, "admin", frozenset(Scope))

    key = await database.keys.authenticate(secret)
    assert key is not None
    assert key.scopes == frozenset(Scope)
    assert secret[:4] not in key.prefix
    assert len(await database.keys.list()) == 1
    await database.keys.revoke(key.prefix)
    await database.keys.ensure(secret, "admin", frozenset(Scope))
    assert await database.keys.authenticate(secret) is None


async def test_a_user_asked_for_by_many_at_once_is_one_user(database: Database) -> None:
    ids = await asyncio.gather(*(database.users.get_or_create("anna") for _ in range(10)))

    assert len(set(ids)) == 1
    assert await database.users.get("anna") == ids[0]
    assert await database.users.get("ben") is None


@pytest.mark.parametrize("name", ["", "x" * 201])
async def test_an_impossible_user_name_is_invalid_input(database: Database, name: str) -> None:
    with pytest.raises(InvalidInput):
        await database.users.get_or_create(name)


async def test_the_last_calibration_of_a_model_is_kept(database: Database) -> None:
    assert await database.calibrations.load("openai:gpt-5") is None

    for calibration in (Calibration(1.1, 1), Calibration(1.25, 2, learned_window=8000)):
        await database.calibrations.save("openai:gpt-5", calibration)

    assert await database.calibrations.load("openai:gpt-5") == Calibration(1.25, 2, 8000)


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
    config = DatabaseConfig(**urls_of(database_url), keeps_costs_of_erased_users=False, front_ends=storages())
    deleting = Database(config)

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


async def test_the_local_user_begins_again_after_its_erasure(database: Database) -> None:
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


FORGOTTEN_KEYED = "select idempotency_key from {table} where idempotency_key is not null order by 1"


@pytest.fixture
async def stage(database: Database) -> Stage:
    stage = await open_stage(database)
    stage.model.by_request = lambda _: Say("Yes.")
    return stage


def retention_of(stage: Stage, hours: int = 48) -> Retention:
    return Retention(
        stage.database.retention, ManualClock(), stage.metrics, RetentionConfig(idempotency_keys_hours=hours)
    )


def old_id(number: int) -> UUID:
    """Return an id as it was made in 2022."""
    return UUID(f"01800000-0000-7000-8000-{number:012x}")


async def keys(url: str, table: str = "runs") -> list[object]:
    return [key for (key,) in await run_sql(url, FORGOTTEN_KEYED.format(table=table))]


async def store_old_runs(stage: Stage, url: str, keys: range, *, ended_hours_ago: int | None = 49) -> None:
    """Store runs made long ago, each under its number as its key."""
    await run_sql(
        url,
        "insert into runs (id, session_id, owner_id, agent, status, input, source, idempotency_key, fingerprint, "
        "finished_at) select cast('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid), $1, $2, 'assistant',"
        " case when $5::int is null then 'queued' else 'succeeded' end, '{\"content\": \"long ago\"}', 'api', "
        "n::text, 'f', now() - make_interval(hours => $5) from generate_series($3::int, $4::int) n",
        stage.session.id,
        stage.owner_id,
        keys.start,
        keys.stop - 1,
        ended_hours_ago,
    )


async def submit_and_end(stage: Stage, url: str, key: str) -> Run:
    run = await stage.submit("What is it?", key=key)
    await run_sql(url, "update runs set status = 'succeeded', finished_at = now() where id = $1", run.id)
    return run


async def create(stage: Stage, key: str) -> tuple[Session, CreateOutcome]:
    new = NewSession(stage.owner_id, "assistant", "", Source.API, {}, idempotency_key=key, fingerprint="f")
    return await stage.database.sessions.create(new)


async def test_keys_of_runs_that_ended_long_ago_go_and_those_of_others_stay(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(1, 2))
    await store_old_runs(stage, database_url, range(2, 3), ended_hours_ago=47)
    await store_old_runs(stage, database_url, range(3, 4), ended_hours_ago=None)
    await submit_and_end(stage, database_url, "young")

    await retention_of(stage).run()
    await retention_of(stage).run()

    assert await keys(database_url) == ["2", "3", "young"]
    assert await run_sql(database_url, "select fingerprint from runs where id = $1", old_id(1)) == [("",)]


async def test_keys_of_runs_that_wait_keep_nothing_behind_them(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(ROWS_AT_ONCE), ended_hours_ago=None)
    await store_old_runs(stage, database_url, range(ROWS_AT_ONCE, ROWS_AT_ONCE + 3))

    await retention_of(stage).run()

    assert len(await keys(database_url)) == ROWS_AT_ONCE


async def test_a_key_that_was_forgotten_is_a_new_request(stage: Stage, database_url: str) -> None:
    first = await submit_and_end(stage, database_url, "young")
    await store_old_runs(stage, database_url, range(1, 2))
    await retention_of(stage).run()

    again = await stage.submit("What is it?", key="young")
    later = await stage.submit("Something else", key="1")

    assert again.id == first.id
    assert later.id != old_id(1)


async def test_keys_of_sessions_made_long_ago_go_with_their_fingerprints(stage: Stage, database_url: str) -> None:
    kept, _ = await create(stage, "young")
    await run_sql(
        database_url,
        "insert into sessions (id, owner_id, agent, source, idempotency_key, fingerprint) "
        "values ($1, $2, 'assistant', 'api', 'old', 'f')",
        old_id(1),
        stage.owner_id,
    )

    await retention_of(stage).run()

    assert await keys(database_url, "sessions") == ["young"]
    assert (await create(stage, "young")) == (kept, CreateOutcome.REPLAYED)
    assert (await create(stage, "old"))[1] is CreateOutcome.CREATED
    assert await run_sql(database_url, "select fingerprint from sessions where id = $1", old_id(1)) == [("",)]


async def test_a_run_that_somebody_holds_is_passed_over_until_the_next_time(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(ROWS_AT_ONCE + 3))

    async with hold_rows(database_url, f"select from runs where id = '{old_id(0)}' for update"):
        await retention_of(stage).run()
    held = await keys(database_url)
    await retention_of(stage).run()

    assert held == ["0"]
    assert await keys(database_url) == []


async def test_two_at_once_forget_the_same_and_fail_nobody(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(30))

    await asyncio.gather(*(retention_of(stage).run() for _ in range(3)))

    told = [report["count"] for report in stage.metrics.of("retention_deleted") if report["kind"] == "run_keys"]
    assert sum(int(str(count)) for count in told) == 30
    assert await keys(database_url) == []


async def test_keys_are_kept_for_ever_where_their_hours_are_none(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(3))

    await retention_of(stage, hours=0).run()

    assert len(await keys(database_url)) == 3
