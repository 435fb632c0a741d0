"""What a search box is read as: what narrows the search down, what is refused, and what is text."""

from datetime import UTC, datetime

import pytest

from throughline.db.search.analyzer import Analyzer
from throughline.db.search.query import ReadQuery, read_plain, read_query
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Role
from throughline.domain.recall import HistoryFilter

ANALYZER = Analyzer("english")


def read(text: str) -> ReadQuery:
    return read_query(ANALYZER, text, HistoryFilter(), author_weight=0.5)


def test_words_that_only_ask_count_less_in_a_question_and_as_much_in_other_text() -> None:
    assert read("What did Ana say about paint?").terms["paint"] == 1.0
    assert [read("What did Ana say about paint?").terms[word] for word in ("what", "say", "about")] == [0.4] * 3
    assert read("say what").terms["say"] == read("say what").terms["what"] == 1.0


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("What did we say about the printer?", "printer"),
        ("Was haben wir zum Drucker gesagt?", "drucker"),
        ("Was hatten wir zu Drucker besprochen?", "drucker"),
        ("¿Qué hemos dicho de la impresora?", "impresora"),
        ("Qu'avons-nous dit sur imprimante ?", "imprimante"),
    ],
)
def test_a_question_before_a_turn_is_looked_up_by_its_subject_alone(question: str, subject: str) -> None:
    stop_words = {"what", "was", "qué", "about"}

    words = read_plain(ANALYZER, question, HistoryFilter(), author_weight=0.5).words

    assert words - stop_words == {ANALYZER.word(subject)}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("vault before:yesterday", "`before:yesterday` names no day. Write the day as in `before:2026-03-14`"),
        ("after:2026-02-30", "`after:2026-02-30` names no day"),
        ("vault after:", "`after:` has no value. Write the day as in `after:2026-03-14`"),
        ("on:click", "`on:click` names no day"),
        ("author: anna", "`author:` has no value. Write for example `author:anna`"),
        ('author:"  "', "has no value"),
        ("role:xyz vault", "`role:xyz` names no role. Write `role:user`, `role:assistant` or `role:tool`"),
        ("tool:", "`tool:` has no value"),
        (f"role:{'x' * 900}", "…` names no role"),
    ],
)
def test_a_value_that_cannot_narrow_the_search_down_is_refused_with_what_to_write(text: str, what: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)

    assert what in caught.value.detail
    assert "in double quotes" in caught.value.detail
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("error: disk full", "error"),
        ("http://example.org/a?b=1", "http://example.org/a"),
        ("foo:bar", "foo:bar"),
        ("std::before:x", "std::before:x"),
        ("app/db/after:12", "app/db/after:12"),
        ('"on:click"', "on:click"),
        ('see "what came before: nothing"', "see"),
        ("(role:king)", "role:king"),
    ],
)
def test_text_with_colons_that_narrows_nothing_down_is_looked_for(text: str, term: str) -> None:
    found = read(text)

    assert term in found.words
    assert (found.only.role, found.only.since, found.only.until) == (None, None, None)


def test_all_six_names_narrow_the_search_down() -> None:
    found = read('vault role:USER author:"anna lee" tool:grep after:2026-03-01 before:2026-04-01')

    assert found.words == {"vault"}
    assert found.only == HistoryFilter(
        role=Role.USER,
        author="anna lee",
        tool="grep",
        since=datetime(2026, 3, 1, tzinfo=UTC),
        until=datetime(2026, 4, 1, tzinfo=UTC),
    )


def test_on_the_last_day_there_is_no_day_ends_the_search() -> None:
    assert read("on:9999-12-31").only == HistoryFilter(since=datetime(9999, 12, 31, tzinfo=UTC))
