"""The search before a turn, by words and by meaning: one call of the model for all questions, quick or not at all."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from fakes.provider_double import ProviderDouble
from fakes.provider_double.embeddings import EmbeddingFailure
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from recall.history_stage import CAT, DOG, OSLO, HistoryStage, open_history_stage
from throughline.context.quoted_history import choose_quotations
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.recall import HistoryQuery, SearchResult
from throughline.execution.breaker import FAILURES_TO_OPEN
from throughline.turn.recall import history_search


@pytest.fixture
async def stage(database: Database, database_url: str, provider_double: ProviderDouble) -> AsyncIterator[HistoryStage]:
    async with open_history_stage(database, database_url, provider_double) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model be as slow as the machine: before a turn it has 0.3 seconds."""
    monkeypatch.setattr(history_search, "QUICK_SECONDS", HANG_SECONDS)


async def quick(stage: HistoryStage, query: str) -> SearchResult:
    """Search the only session as before a turn."""
    ((session_id,),) = await run_sql(stage.url, "select id from sessions")
    asked = HistoryQuery(query, is_before_turn=True, is_plain=True)
    (found,) = await stage.history.search_before_turn(await stage.user(), cast(SessionId, session_id), [asked])
    return found


async def test_before_a_turn_what_shares_no_word_is_quoted_by_its_meaning(stage: HistoryStage) -> None:
    await stage.fill(CAT, DOG, OSLO)
    assert choose_quotations(await quick(stage, "feline")) == ()
    await stage.embed()

    assert choose_quotations(await quick(stage, "feline"))[0].message.content == CAT


async def test_the_questions_of_a_turn_are_embedded_by_one_call(stage: HistoryStage) -> None:
    session_id = await stage.fill(CAT, "I drink tea.", OSLO)
    await stage.embed()
    stage.provider.requests.clear()
    asked = [HistoryQuery(text, is_before_turn=True, is_plain=True) for text in ("feline", "beverage", "dwells")]

    found = await stage.history.search_before_turn(await stage.user(), session_id, asked)

    assert stage.provider.requests == [("feline", "beverage", "dwells")]
    assert [result.hits[0].message.content for result in found] == [CAT, "I drink tea.", OSLO]


async def test_before_a_turn_many_near_texts_are_no_answer(stage: HistoryStage) -> None:
    """As with models that place all texts near each other."""
    await stage.fill(*(f"cat {number}" for number in range(9)))
    await stage.embed()

    found = await quick(stage, "feline")

    assert len(found.hits) == 9
    assert choose_quotations(found) == ()


async def test_before_a_turn_the_meaning_changes_the_order_and_not_the_scores(stage: HistoryStage) -> None:
    await stage.fill("The tea is on the table, cat.", "The kitten drinks tea.", "A table for the tea of a dog.")
    by_words = await quick(stage, "tea cat table")
    await stage.embed()
    both = await quick(stage, "tea cat table")

    assert (by_words.by, both.by) == ("text", "vector")
    assert both.full_score == by_words.full_score
    assert [hit.score for hit in both.hits] == sorted((hit.score for hit in both.hits), reverse=True)
    assert {hit.message.id for hit in both.hits} >= {hit.message.id for hit in by_words.hits}


@pytest.mark.parametrize("failure", ["hang", "down"])
async def test_before_a_turn_a_late_or_broken_model_leaves_the_words(
    stage: HistoryStage, failure: EmbeddingFailure, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.fill(CAT, DOG)
    await stage.embed()
    stage.provider.failure = failure
    monkeypatch.setattr(history_search, "QUICK_SECONDS", 0.1)

    found = [await quick(stage, "dog") for _ in range(FAILURES_TO_OPEN)][-1]
    stage.provider.failure = ""

    assert (await stage.found("feline"))[0] == ("vector" if failure == "hang" else "text")
    assert (found.by, found.hits[0].message.content) == ("text", DOG)
