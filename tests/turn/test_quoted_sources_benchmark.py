"""The benchmark of quoted sources sees in a prompt what stands there, and measures every way of making prompts fit."""

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.figures import connected
from benchmarks.quoted_sources import (
    ARMS,
    Arm,
    Inputs,
    TimedHistory,
    first_recent,
    found_by_bm25,
    is_shown,
    measure,
    table_of_abilities,
)
from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_data import Archive, Line, Meeting
from benchmarks.retrieval_readers import Kind, read_kinds
from fakes.provider_double import ProviderDouble, serve_double
from throughline.context.view.placeholder_texts import TAG, delimited
from throughline.db.database import Database

WINDOW = 4_000
LONG = "\n".join(f"Line {number} of the long message about the boat yard." for number in range(20))


@pytest.fixture(scope="module")
def chat() -> Meeting:
    (read,) = read_kinds([SAMPLE / "beam"])[Kind.ASSISTANT].of("all")
    return read


@pytest.fixture
def double() -> Iterator[ProviderDouble]:
    with serve_double(ProviderDouble()) as running:
        yield running


def note(*quotations: tuple[int, str]) -> str:
    lines = [f"[#{position}, user, 2024-03-15 00:01] {text}" for position, text in quotations]
    return "A record follows.\n" + delimited(TAG, "\n".join(lines))


def test_a_source_is_shown_whole_or_as_a_quotation_of_its_position() -> None:
    excerpt = f"…{' '.join(LONG[300:550].split())}…"

    assert is_shown(LONG, 7, ["Hello.", f"They said:\n{LONG}\nand more."])
    assert is_shown(LONG, 7, [note((3, "Something else."), (7, excerpt))])
    assert is_shown("Short.\nText.", 7, [note((7, "Short.\n  Text."), (9, excerpt))])
    assert not is_shown(LONG, 7, [note((6, excerpt), (7, "Something else."))])
    assert not is_shown(LONG, 7, [note((7, f"…{LONG[300:450]}…"))])
    assert not is_shown("Short.\nText.", 7, [note((7, "Short.…"))])


def test_recent_messages_begin_with_the_user_and_fit() -> None:
    lines = [Line("", "word " * 100, role=role) for role in ("user", "assistant") * 3]

    assert [first_recent(lines, tokens) for tokens in (10_000, 450, 350, 250, 50)] == [0, 2, 4, 4, 6]


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
async def test_each_arm_sends_all_questions(
    database: Database, database_url: str, double: ProviderDouble, chat: Meeting, arm: Arm
) -> None:
    async with connected(database_url) as connection:
        archive = Archive(database, connection, await database.users.get_or_create("anna"))
        figures = await measure(archive, double, arm, Inputs([chat], ["Hello!", "Run the tests."], WINDOW))

    assert [asked.ability for asked in figures.asked] == [question.ability for question in chat.questions]
    assert [len(asked.shown) for asked in figures.asked] == [len(question.spans) for question in chat.questions]
    assert len(figures.small_talk) == 2
    assert any(any(asked.shown) for asked in figures.asked)
    if arm.is_summarised:
        facts = [asked for asked in figures.asked if asked.ability == "information_extraction"]
        assert all(all(asked.shown) and asked.tokens and asked.seconds for asked in facts)
        assert "information extraction | 2 | 100% / 100%" in " ".join(table_of_abilities({"arm": figures}).split())


def test_users_messages_by_bm25_are_the_comparison(chat: Meeting) -> None:
    found = list(found_by_bm25(chat, WINDOW))

    assert len(found) == len(chat.questions)
    assert 8 <= sum(all(asked.shown) for asked in found) < len(found)  # not all: one source is an answer
    assert all(asked.tokens > 0 for asked in found)


async def test_a_recall_that_is_given_up_is_told() -> None:
    class Hanging:
        async def search(self) -> None:
            await asyncio.Event().wait()

    history = TimedHistory(Hanging())
    before = history.is_given_up

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await history.search()

    assert (before, history.is_given_up) == (False, True)
    assert history.seconds > 0
