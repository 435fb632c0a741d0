"""Messages found by what they mean: embedded by a job at a limited rate, and never another user's."""

import random
from collections.abc import AsyncIterator

import pytest

from fakes.provider_double import ProviderDouble
from fakes.raw_sql import connected, run_sql
from recall.history_stage import (
    CAT,
    DIMENSIONS,
    DOG,
    KIND,
    MODEL,
    OSLO,
    HistoryStage,
    open_history_stage,
)
from throughline.db.database import Database
from throughline.db.search import message_vectors
from throughline.db.search.message_vectors import BATCH, TEXT_CHARACTERS, signs_of
from throughline.db.sessions.redaction import Redaction
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput, ModelQuotaExhausted, ModelUnavailable, NotFound
from throughline.domain.message import Role
from throughline.domain.recall import HistoryFilter, HistoryQuery, VectorKind
from throughline.execution.breaker import FAILURES_TO_OPEN
from throughline.execution.compute_threads import work_for
from throughline.llm.counters import make_counter


@pytest.fixture
async def stage(database: Database, database_url: str, provider_double: ProviderDouble) -> AsyncIterator[HistoryStage]:
    async with open_history_stage(database, database_url, provider_double) as opened:
        yield opened


async def test_what_shares_no_word_with_the_query_is_found_by_its_meaning(stage: HistoryStage) -> None:
    await stage.fill(CAT, DOG, OSLO)
    before = await stage.found("feline")
    await stage.embed()

    by, texts = await stage.found("feline")

    assert before == ("text", [])
    assert (by, texts[0]) == ("vector", CAT)


async def test_what_both_rankings_know_comes_before_what_one_knows(stage: HistoryStage) -> None:
    await stage.fill("Rex is a dog and he sleeps.", "The kitten sleeps.", "The cat sleeps on the sofa.")
    await stage.embed()

    found = await stage.search("cat sofa")

    assert found.hits[0].message.content == "The cat sleeps on the sofa."
    assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True)
    assert len({hit.message.id for hit in found.hits}) == len(found.hits) == 3


async def test_a_search_sends_its_words_without_filters_and_keeps_to_the_filters(stage: HistoryStage) -> None:
    await stage.fill(CAT, "The kitten eats.", roles=(Role.USER, Role.ASSISTANT))
    await stage.embed()
    stage.provider.requests.clear()

    newest = await stage.search("role:user")
    by, texts = await stage.found("feline role:assistant")

    assert newest.by == "text"
    assert stage.provider.requests == [("feline",)]
    assert (by, texts) == ("vector", ["The kitten eats."])
    with pytest.raises(InvalidInput):
        await stage.found("feline before:yesterday")


async def test_authors_are_part_of_the_text_and_tool_results_are_not_embedded(stage: HistoryStage) -> None:
    session = await stage.fill(CAT, "result", "", roles=(Role.USER, Role.TOOL, Role.ASSISTANT), author="ben")
    await stage.embed()

    assert stage.provider.texts[1:] == [f"ben: {CAT}"]
    assert await stage.vectors() == [(1, MODEL, DIMENSIONS)]
    assert await run_sql(stage.url, "select session_id, through_position from embedded_sessions") == [(session, 3)]


async def test_a_long_message_is_embedded_by_its_beginning(stage: HistoryStage) -> None:
    await stage.fill("word " * TEXT_CHARACTERS)

    await stage.embed()

    assert [len(text) for text in stage.provider.texts[1:]] == [TEXT_CHARACTERS - 1]


@pytest.mark.parametrize("calls_per_minute", [1, 6, 600])
async def test_the_job_keeps_to_its_rate_and_goes_on_where_it_stopped(
    database: Database, database_url: str, provider_double: ProviderDouble, calls_per_minute: int
) -> None:
    async with open_history_stage(database, database_url, provider_double, calls_per_minute=calls_per_minute) as stage:
        for number in range(3):
            await stage.fill(*(f"text {number} {place}" for place in range(BATCH)))
        await stage.embed()
        once, seconds = list(stage.provider.texts), stage.clock.monotonic()
        await stage.fill("one more")
        await stage.embed()

        assert sorted(map(len, stage.provider.requests)) == [1, 1, *[BATCH] * 3]
        assert len(set(once)) == len(once) == 3 * BATCH + 1  # and the question how long the vectors are
        assert seconds >= 3 * 60 / calls_per_minute
        assert stage.clock.monotonic() >= 4 * 60 / calls_per_minute


async def test_refused_texts_keep_to_the_rate_too(stage: HistoryStage) -> None:
    await stage.fill(*(f"poison {number}" for number in range(BATCH)))
    stage.provider.refused_word = "poison"

    await stage.embed()

    assert len(stage.provider.requests) > 2 * BATCH
    assert stage.clock.monotonic() >= len(stage.provider.requests) - 1


async def test_a_text_at_which_the_server_fails_holds_up_no_other(stage: HistoryStage) -> None:
    await stage.fill("number one", "broken two", CAT)
    stage.provider.broken_word = "broken"

    await stage.embed()

    assert [position for position, *_ in await stage.vectors()] == [1, 3]


async def test_a_rate_limit_ends_the_round_with_the_pause_that_the_provider_asks_for(stage: HistoryStage) -> None:
    await stage.fill(CAT)
    stage.provider.failure = "rate"

    rest = await stage.embedding.run(MODEL)

    assert rest is not None
    assert (rest.pause.total_seconds(), rest.has_failed) == (7.0, True)


async def test_a_length_that_changes_while_messages_are_embedded_mixes_nothing(stage: HistoryStage) -> None:
    await stage.model.embed(["known"])
    await stage.fill(CAT)
    stage.provider.dimensions = 16
    await stage.embed()
    stage.provider.dimensions = DIMENSIONS
    await stage.found("feline")
    await stage.embed()

    assert await stage.vectors() == [(1, MODEL, 16), (1, MODEL, DIMENSIONS)]
    assert await run_sql(stage.url, "select distinct length(signs) from message_embeddings order by 1") == [
        (16,),
        (DIMENSIONS,),
    ]
    assert await stage.found("feline") == ("vector", [CAT])


async def test_nothing_is_found_that_is_no_nearer_than_chance(stage: HistoryStage) -> None:
    await stage.fill(DOG, OSLO)
    await stage.embed()

    assert await stage.found("xyzzy") == ("text", [])


async def test_a_locked_session_holds_up_no_other_and_is_embedded_later(stage: HistoryStage, database_url: str) -> None:
    first, second = await stage.fill(CAT), await stage.fill(DOG)
    await stage.model.embed(["known"])
    async with connected(database_url) as connection, connection.transaction():
        await connection.execute("select from sessions where id = $1 for update", first)
        rest = await stage.embedding.run(MODEL)
        meanwhile = await run_sql(database_url, "select session_id from embedded_sessions")
    await stage.embed()

    assert rest is not None
    assert meanwhile == [(second,)]
    assert len(await stage.vectors()) == 2


async def test_a_statement_that_fails_leaves_the_search_by_words(stage: HistoryStage) -> None:
    await stage.fill(CAT)
    await stage.embed()
    await run_sql(stage.url, "alter table message_embeddings rename to away")

    assert await stage.found("miso") == ("text", [CAT])


async def test_newer_sessions_and_new_messages_come_first(stage: HistoryStage) -> None:
    await stage.fill("old")
    await stage.fill("new")
    await stage.embed()

    assert stage.provider.texts[1:] == ["new", "old"]


async def test_a_job_that_fails_has_kept_what_was_done(
    database: Database, database_url: str, provider_double: ProviderDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_vectors, "BATCH", 1)
    async with open_history_stage(database, database_url, provider_double, calls_per_minute=6) as stage:
        await stage.model.embed(["known"])
        await stage.fill(CAT, DOG)
        await stage.embedding.run(MODEL)
        kept = await stage.vectors()
        stage.provider.failure = "down"
        with pytest.raises(ModelUnavailable):
            await stage.embedding.run(MODEL)
        stage.provider.failure = ""
        await stage.embed()

        assert kept == [(1, MODEL, DIMENSIONS)]
        assert stage.provider.texts.count(CAT) == 1
        assert len(await stage.vectors()) == 2


async def test_an_account_that_is_refused_ends_the_job_and_no_search(stage: HistoryStage) -> None:
    await stage.fill(CAT)
    stage.provider.failure = "quota"
    with pytest.raises(ModelQuotaExhausted):
        await stage.embed()

    assert await stage.vectors() == []
    assert await stage.found("miso") == ("text", [CAT])


async def test_a_text_that_the_model_refuses_holds_up_no_other(stage: HistoryStage) -> None:
    await stage.fill(*(f"number {number}" for number in range(5)), "poison", CAT)
    stage.provider.refused_word = "poison"

    await stage.embed()

    assert [position for position, *_ in await stage.vectors()] == [1, 2, 3, 4, 5, 7]
    assert (await stage.found("feline"))[1][0] == CAT
    asked = len(stage.provider.requests)
    await stage.embed()
    assert len(stage.provider.requests) == asked


async def test_a_provider_that_fails_leaves_the_search_by_words(stage: HistoryStage) -> None:
    await stage.fill(CAT)
    await stage.embed()
    stage.provider.failure = "down"
    stage.provider.requests.clear()

    found = [await stage.found("miso") for _ in range(FAILURES_TO_OPEN + 2)]

    assert found == [("text", [CAT])] * len(found)
    assert len(stage.provider.requests) == FAILURES_TO_OPEN


async def test_another_model_embeds_everything_again_and_old_vectors_go_after_a_week(
    stage: HistoryStage, database: Database, database_url: str, provider_double: ProviderDouble
) -> None:
    await stage.fill(CAT)
    await stage.embed()
    async with open_history_stage(database, database_url, provider_double, model="openai:other") as other:
        meanwhile = await other.found("feline")
        await other.embed()
        both = await other.vectors()
        await run_sql(
            database_url,
            "update embedded_sessions set updated_at = now() - interval '8 days' where model = $1",
            MODEL,
        )
        await other.embed()

        assert meanwhile == ("text", [])
        assert both == [(1, "openai:other", DIMENSIONS), (1, MODEL, DIMENSIONS)]
        assert await other.vectors() == [(1, "openai:other", DIMENSIONS)]
        assert (await other.found("feline"))[0] == "vector"


async def test_vectors_of_another_length_are_not_compared(stage: HistoryStage) -> None:
    await stage.fill(CAT)
    await stage.embed()
    stage.provider.dimensions = 512

    first = await stage.found("feline")
    await stage.embed()

    assert first == ("text", [])
    assert await stage.vectors() == [(1, MODEL, 512), (1, MODEL, DIMENSIONS)]
    assert await stage.found("feline") == ("vector", [CAT])


async def test_a_job_for_another_model_is_left_to_others(stage: HistoryStage) -> None:
    rest = await stage.embedding.run("openai:other")

    assert rest is not None
    assert rest.has_failed
    assert stage.provider.requests == []


async def test_nobody_finds_what_another_user_said_however_near_it_is(stage: HistoryStage) -> None:
    users = [f"user-{number}" for number in range(12)]
    sessions = {user: await stage.fill(f"The cat of {user}.", DOG, user=user) for user in users}
    await stage.embed()
    chance = random.Random(7)

    for _ in range(60):
        who, whose = chance.choice(users), chance.choice(users)
        session_id = chance.choice([None, sessions[whose]])
        try:
            found = await stage.search(chance.choice(["feline", "kitten dog"]), user=who, session_id=session_id)
        except NotFound:
            assert session_id == sessions[whose] != sessions[who]
            continue
        assert {hit.message.session_id for hit in found.hits} <= {sessions[who]}


async def test_a_redacted_message_loses_its_vector_and_gets_none_again(stage: HistoryStage) -> None:
    session_id = await stage.fill(CAT, DOG)
    await stage.embed()
    await redact(stage, session_id, 1)
    after = await stage.vectors()
    await run_sql(stage.url, "delete from embedded_sessions")
    stage.provider.requests.clear()
    await stage.embed()

    assert after == await stage.vectors() == [(2, MODEL, DIMENSIONS)]
    assert stage.provider.texts == [DOG]


async def test_a_text_redacted_while_it_was_embedded_leaves_no_vector(stage: HistoryStage, database: Database) -> None:
    session_id = await stage.fill(CAT, DOG)
    read = await database.message_vectors.missing(KIND)
    assert read is not None
    await redact(stage, session_id, 1)

    await database.message_vectors.put(KIND, read, [(1.0,) * DIMENSIONS] * 2)

    assert await stage.vectors() == []
    again = await database.message_vectors.missing(KIND)
    assert again is not None
    assert again.texts == (DOG,)


async def test_an_erased_session_takes_its_vectors_along(stage: HistoryStage, database: Database) -> None:
    session_id = await stage.fill(CAT)
    await stage.embed()
    read = await database.message_vectors.missing(VectorKind("openai:other", DIMENSIONS))
    assert read is not None

    await database.sessions.delete(await stage.user(), session_id)
    await database.message_vectors.put(VectorKind("openai:other", DIMENSIONS), read, [(1.0,) * DIMENSIONS])

    assert await stage.vectors() == []
    assert await run_sql(stage.url, "select count(*) from embedded_sessions") == [(0,)]


async def test_only_what_lies_before_the_bounds_is_found(stage: HistoryStage) -> None:
    session_id = await stage.fill(CAT, "A kitten.", "One more feline.")
    await stage.embed()
    asked = HistoryQuery("cat", only=HistoryFilter(before=3, after=1))

    found = await stage.history.search(await stage.user(), session_id, asked)

    assert [hit.message.position for hit in found.hits] == [2]


async def redact(stage: HistoryStage, session_id: SessionId, position: int) -> None:
    owner_id = await stage.user()
    (message,) = await stage.history.read(owner_id, session_id, position, position)
    await stage.database.messages.redact(Redaction(owner_id, session_id, message.id))


def test_signs_are_padded_hexadecimal_digits() -> None:
    assert signs_of((0.1, -0.1, 0.0, 2.0, 1.0)) == "x98"
    assert signs_of((-1.0,) * 8) == "x00"


async def test_what_is_embedded_is_recorded_as_calls_of_nobody_and_of_who_searches(stage: HistoryStage) -> None:
    await stage.fill(CAT, DOG)
    await stage.embed()
    by_job = await run_sql(stage.url, "select distinct purpose, model, owner_id from model_calls")
    work_for(await stage.user())
    await stage.found("feline")
    (owner,) = await run_sql(stage.url, "select owner_id, input_tokens from model_calls where owner_id is not null")

    assert by_job == [("embedding", MODEL, None)]
    assert owner == (await stage.user(), make_counter("tiktoken").count("feline"))
