"""A server says whether it can take messages: its database, its schema, its listener, its worker and its side jobs."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.pooler import direct_url
from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.raw_sql import run_sql
from fakes.service_process import ServiceProcess, run_service, run_worker
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow


async def checks_of(server: ServiceProcess) -> dict[str, bool]:
    return dict((await server.client.get("/health/ready")).json()["checks"])


async def until_checks(server: ServiceProcess, wanted: Mapping[str, bool]) -> int:
    async with asyncio.timeout(HANG_SECONDS):
        while await checks_of(server) != wanted:
            await asyncio.sleep(0.05)
    return (await server.client.get("/health/ready")).status_code


async def test_a_server_with_a_worker_checks_all_it_consists_of(folder: Path, settings: Mapping[str, str]) -> None:
    async with run_service(folder, settings) as server:
        every = {"database": True, "schema": True, "listener": True, "worker": True, "jobs": True}
        assert await until_checks(server, every) == 200

        await run_sql(direct_url(settings), "update alembic_version set version_num = '0018'")
        behind = await server.client.get("/health/ready")
        await run_sql(direct_url(settings), "drop table alembic_version")
        without = await server.client.get("/health/ready")

    assert (behind.status_code, behind.json()["checks"]["database"]) == (503, False)
    assert (without.status_code, without.json()["checks"]["database"]) == (503, False)


async def test_a_server_whose_schema_is_upgraded_beyond_it_stays_ready_and_works(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="still here"))
    async with run_service(folder, settings) as server:
        await run_sql(direct_url(settings), "update alembic_version set version_num = '9999'")
        ready = await server.client.get("/health/ready")
        answer = await server.send(await server.new_session(), "anybody there?")

    assert (ready.status_code, ready.json()["status"], ready.json()["checks"]["schema"]) == (200, "degraded", False)
    assert answer.json()["message"]["content"] == "still here"


async def test_a_server_without_a_worker_is_ready_and_says_whether_any_process_takes_turns(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess
) -> None:
    assert await until_checks(server, {"database": True, "schema": True, "listener": True, "workers": False}) == 200
    alone = (await server.client.get("/health/ready")).json()["status"]

    async with run_worker(folder, settings):
        assert await until_checks(server, {"database": True, "schema": True, "listener": True, "workers": True}) == 200
        together = (await server.client.get("/health/ready")).json()["status"]

    assert (alone, together) == ("degraded", "ok")
