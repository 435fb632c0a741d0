"""Memories found by what they mean: stored at once, embedded when the model can, and never another user's."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from structlog.testing import capture_logs

from fakes.memory_stage import MODEL, MemoryStage, open_memory_stage
from fakes.provider_double import ProviderDouble
from fakes.raw_sql import run_sql, until_sql
from fakes.silent_metrics import ListedSpan, SilentMetrics, parts_below
from throughline.db.database import Database
from throughline.db.memories import MemoryChange
from throughline.db.side_jobs import EMBED_MEMORIES
from throughline.domain.basic_types import UserId
from throughline.domain.errors import ModelAuthenticationFailed, ModelUnavailable
from throughline.domain.recall import MAX_MEMORY_CHARACTERS
from throughline.execution.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from throughline.ports.tracing import SpanUnderWay, StepPart
from throughline.turn.recall.embed_missing import BATCH, PROBE
from throughline.turn.worker.jobs import JobRegistry, JobsConfig, SideJobs, embed_in_rounds

pytestmark = pytest.mark.usefixtures("pgvector")

JOBS = "select kind, subject from jobs order by seq"
CAT, DOG, OSLO = "The cat is called Miso.", "Rex is a dog.", "Anna lives in Oslo."


@pytest.fixture
async def stage(database: Database, database_url: str, provider_double: ProviderDouble) -> AsyncIterator[MemoryStage]:
    async with open_memory_stage(database, database_url, provider_double) as opened:
        yield opened


async def test_what_shares_no_word_with_the_query_is_found_by_its_meaning(stage: MemoryStage) -> None:
    await stage.keep(CAT, DOG, OSLO)

    by, texts = await stage.found("feline")

    assert (by, texts[0]) == ("vector", CAT)


async def test_what_both_rankings_know_comes_before_what_one_knows(stage: MemoryStage) -> None:
    await stage.keep("A kitten sleeps.", "The cat sleeps.", "Invoices are due.")
    owner = await stage.user()

    found = await stage.keeper.search(owner, "cat", 10)

    assert found.memories[0].text == "The cat sleeps."
    assert found.memories[0].score == round(1 / 61 + 1 / 61, 6) or found.memories[0].score == round(1 / 62 + 1 / 61, 6)
    assert len({memory.id for memory in found.memories}) == len(found.memories) == 3


async def test_a_search_sends_the_query_and_nothing_else(stage: MemoryStage) -> None:
    await stage.keep(CAT)
    stage.provider.requests.clear()

    await stage.found("feline")

    assert stage.provider.requests == [("feline",)]


async def test_a_request_for_vectors_is_a_part_of_a_trace(stage: MemoryStage) -> None:
    root = ListedSpan(StepPart("root"))

    with SpanUnderWay(root):
        await stage.meaning.embed(["feline"])

    assert parts_below(root) == ["EmbeddingPart"]


async def test_a_memory_stored_in_an_outage_is_found_by_words_and_gets_its_vector_later(
    stage: MemoryStage, database: Database, database_url: str
) -> None:
    stage.provider.failure = "down"
    await stage.keep(CAT)
    by_words = await stage.found("miso")
    assert await run_sql(database_url, JOBS) == [(EMBED_MEMORIES, MODEL)]
    unknown = await stage.found("feline")
    stage.provider.failure = ""
    jobs = SideJobs(
        database.jobs,
        JobRegistry({EMBED_MEMORIES: partial(embed_in_rounds, stage.embedding.run)}),
        SilentMetrics(),
        JobsConfig("worker", concurrency=1),
    )
    running = asyncio.create_task(jobs.run())
    await until_sql(database_url, JOBS, [])
    jobs.stop()
    await running
    stage.clock.advance(COOL_DOWN_SECONDS)

    assert (by_words, unknown) == (("text", [CAT]), ("text", []))
    assert await stage.vectors() == [(CAT, MODEL, 64)]
    assert await stage.found("feline") == ("vector", [CAT])


async def test_a_provider_that_hangs_holds_nobody_up_for_long(
    database: Database, database_url: str, provider_double: ProviderDouble
) -> None:
    async with open_memory_stage(database, database_url, provider_double, timeout_seconds=1.0) as stage:
        stage.provider.failure = "hang"
        await stage.keep(CAT, DOG, OSLO)

        assert await stage.found("miso") == ("text", [CAT])
        assert len(stage.provider.requests) == FAILURES_TO_OPEN
    assert await run_sql(database_url, JOBS) == [(EMBED_MEMORIES, MODEL)]


async def test_after_failures_in_a_row_the_provider_is_left_alone_and_then_asked_again(
    stage: MemoryStage,
) -> None:
    stage.provider.failure = "down"
    await stage.keep(*(f"number {number}" for number in range(FAILURES_TO_OPEN + 2)))
    asked = len(stage.provider.requests)
    stage.provider.failure = ""
    stage.clock.advance(COOL_DOWN_SECONDS)
    await stage.keep(CAT)

    assert asked == FAILURES_TO_OPEN
    assert await stage.vectors() == [(CAT, MODEL, 64)]


async def test_vectors_of_another_length_after_a_restart_are_ignored_and_replaced(
    database: Database, database_url: str, provider_double: ProviderDouble
) -> None:
    provider_double.embeddings.dimensions = 8
    async with open_memory_stage(database, database_url, provider_double) as before:
        await before.keep(CAT, DOG)
    provider_double.embeddings.dimensions = 16
    async with open_memory_stage(database, database_url, provider_double) as after:
        not_yet = await after.found("miso")
        await after.keep(OSLO)
        await after.do_job()

        assert not_yet == ("text", [CAT])
        assert await after.vectors() == [(OSLO, MODEL, 16), (DOG, MODEL, 16), (CAT, MODEL, 16)]
        assert (await after.found("feline"))[1][0] == CAT


async def test_a_provider_that_changes_the_length_meanwhile_brings_the_job(
    stage: MemoryStage, database_url: str
) -> None:
    await stage.keep(CAT)
    await run_sql(database_url, "delete from jobs")
    stage.provider.dimensions = 16

    by, texts = await stage.found("miso")

    assert (by, texts) == ("text", [CAT])
    assert await run_sql(database_url, JOBS) == [(EMBED_MEMORIES, MODEL)]
    await stage.do_job()
    assert await stage.vectors() == [(CAT, MODEL, 16)]


async def test_vectors_of_two_models_stand_side_by_side_and_old_ones_go_after_a_week(
    stage: MemoryStage, database: Database, database_url: str, provider_double: ProviderDouble
) -> None:
    await stage.keep(CAT)
    async with open_memory_stage(database, database_url, provider_double, model="openai:other") as other:
        await other.do_job()
        both = await other.vectors()
        await run_sql(
            database_url,
            "update memory_embeddings set created_at = now() - interval '8 days' where model = $1",
            MODEL,
        )
        await other.do_job()

        assert both == [(CAT, "openai:other", 64), (CAT, MODEL, 64)]
        assert await other.vectors() == [(CAT, "openai:other", 64)]


async def test_a_job_for_another_model_is_left_to_others(stage: MemoryStage) -> None:
    await stage.embedding.run("openai:other")

    assert stage.provider.requests == []


async def test_a_changed_text_is_found_by_its_new_meaning_alone(stage: MemoryStage) -> None:
    owner = await stage.user()
    memory = await stage.keeper.create(owner, CAT, {})
    await stage.keeper.update(owner, memory.id, MemoryChange(metadata={"a": 1}))
    asked = len(stage.provider.requests)
    stage.provider.failure = "down"
    await stage.keeper.update(owner, memory.id, MemoryChange(text="Drinks tea."))
    stage.provider.failure = ""

    old = await stage.found("feline")
    await stage.do_job()

    assert asked == 1
    assert old == ("text", [])
    assert await stage.found("beverage") == ("vector", ["Drinks tea."])


async def test_a_vector_of_a_text_that_was_changed_meanwhile_is_not_stored(stage: MemoryStage) -> None:
    owner = await stage.user()
    stage.provider.failure = "down"
    first = await stage.keeper.create(owner, CAT, {})
    await stage.keeper.update(owner, first.id, MemoryChange(text=DOG))

    await stage.database.memory_vectors.put(MODEL, [first], [(1.0, 0.0)])

    assert await stage.vectors() == []


async def test_vectors_go_with_their_memory(stage: MemoryStage, database_url: str) -> None:
    owner = await stage.user()
    memory = await stage.keeper.create(owner, CAT, {})

    await stage.database.memories.delete(owner, memory.id)

    assert await run_sql(database_url, "select count(*) from memory_embeddings") == [(0,)]
    await stage.database.memory_vectors.put(MODEL, [memory], [(1.0, 0.0)])
    assert await run_sql(database_url, "select count(*) from memory_embeddings") == [(0,)]


async def test_nobody_finds_what_another_user_keeps_however_near_it_is(stage: MemoryStage) -> None:
    await stage.keep(CAT, user="anna")
    await stage.keep(DOG, user="ben")

    assert await stage.found(CAT, user="ben") == ("vector", [DOG])
    assert await stage.found(CAT, user="mallory") == ("text", [])


async def test_a_text_the_model_declines_keeps_its_place_and_holds_up_no_other(
    stage: MemoryStage, database_url: str
) -> None:
    stage.provider.failure = "down"
    texts = [f"poison {number}" for number in range(BATCH + 1)]
    await stage.keep(*texts, CAT)
    stage.provider.failure = ""
    stage.provider.refused_word = "poison"

    await stage.do_job()

    assert await stage.vectors() == [(CAT, MODEL, 64)]
    assert await run_sql(database_url, "select count(*) from memories") == [(BATCH + 2,)]


async def test_a_job_whose_provider_is_down_fails_and_one_whose_account_is_empty_asks_once(stage: MemoryStage) -> None:
    stage.provider.failure = "down"
    await stage.keep(CAT, DOG)
    with pytest.raises(ModelUnavailable):
        await stage.do_job()
    stage.provider.failure = "quota"
    stage.provider.requests.clear()

    with pytest.raises(Exception, match="credit or quota") as caught:
        await stage.do_job()

    assert not isinstance(caught.value, ModelAuthenticationFailed)
    assert stage.provider.requests == [(PROBE,)]


async def test_hostile_and_longest_texts_are_embedded_like_any_other(stage: MemoryStage) -> None:
    stage.provider.max_tokens = 100
    await stage.keep(
        "word " * (MAX_MEMORY_CHARACTERS // 5), "'; drop table memories; --", "[1,2]::vector", "\u202e💥", "."
    )

    assert len(await stage.vectors()) == 5
    for query in ("'; drop", "[0]", "💥", "."):
        assert (await stage.found(query))[0] == "vector"


async def test_random_searches_by_meaning_show_no_foreign_memory(stage: MemoryStage) -> None:
    owners: list[UserId] = [await stage.user(f"user-{number}") for number in range(8)]
    for owner in owners:
        for text in ("harbour", "comet", "kitten"):
            await stage.keeper.create(owner, text, {})

    for owner in owners:
        for query in ("harbour comet", "cat", "ledger"):
            found = await stage.keeper.search(owner, query, 50)
            assert found.by == "vector"
            assert {memory.user_id for memory in found.memories} == {owner}


async def test_the_log_says_what_the_embedding_models_provider_said(stage: MemoryStage) -> None:
    stage.provider.failure = "quota"

    with capture_logs() as logs:
        await stage.keep(CAT)

    failed = next(entry for entry in logs if entry["event"].startswith("embedding request"))
    assert "quota" in failed["provider_message"]
    assert "Miso" not in str(logs)
