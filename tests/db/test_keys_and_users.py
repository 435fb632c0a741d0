"""API keys and users, and what is learned of models."""

import asyncio

import pytest

from fakes.raw_sql import run_sql
from throughline.context.calibration import Calibration
from throughline.db.database import Database
from throughline.domain.errors import InvalidInput
from throughline.domain.keys import NewKey, Scope

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
