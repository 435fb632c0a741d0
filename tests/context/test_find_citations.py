"""Citations in a text: where they are, what they name, and what is quoted beside them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.context.find_citations import MOST_CITATIONS, contains_quotation, find_citations, fold_text
from throughline.domain.recall import Citation

SESSION = UUID("0198c7a2-1111-7abc-8def-0123456789ab")
POSITIONS = st.integers(0, 999_999_999)
NAMED = st.tuples(POSITIONS, st.none() | POSITIONS, st.none() | st.uuids())
Named = tuple[int, int | None, UUID | None]
PROSE = st.text(st.sampled_from("ab .,;:\n#()*_-äß中"), max_size=20)
PIECES = [
    "`",
    "```\n",
    "~~~",
    "[#1]",
    "[#1-#2]",
    "[#1, #2]",
    '"',
    "'",
    "„",
    "“",
    "”",
    "»",
    "«",
    "\n",
    " ",
    "a",
    "[#",
    "]",
]


def written(first: int, last: int | None, session: UUID | None) -> str:
    places = f"#{first}" if last is None else f"#{first}-#{last}"
    return places if session is None else f"{places} in session {session}"


def named(text: str) -> list[tuple[int, int, object]]:
    return [(found.from_position, found.to_position, found.session_id) for found in find_citations(text)]


def quotation_in(text: str) -> str:
    (found,) = find_citations(text)
    return found.quotation


@given(st.lists(st.tuples(PROSE, NAMED), max_size=9), PROSE)
def test_written_citations_are_found_where_they_stand(parts: list[tuple[str, Named]], end: str) -> None:
    text = "".join(f"{prose} [{written(*one)}] " for prose, one in parts) + end

    found = find_citations(text)

    assert named(text) == [(first, first if last is None else last, session) for _, (first, last, session) in parts]
    assert [text[one.start : one.end] for one in found] == [written(*one) for _, one in parts]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_can_be_searched(text: str) -> None:
    for found in find_citations(text):
        assert text[found.start] == "#"
        assert text[found.start : found.end].strip() == text[found.start : found.end]
        assert found.quotation in text


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.integers(3, 6))
def test_fenced_code_is_not_searched(code: str, ticks: int) -> None:
    inside = code.replace("`", "").replace("~", "")
    fence = "`" * ticks

    assert find_citations(f"before\n{fence}\n{inside}\n{fence}\nafter") == ()


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.integers(1, 3))
def test_code_in_a_line_is_not_searched(code: str, ticks: int) -> None:
    inside = code.replace("`", "").replace("~", "").replace("\n", "")
    mark = "`" * ticks

    assert find_citations(f"see {mark} {inside} {mark}, {mark}{mark}") == ()


def test_code_that_is_never_closed_hides_only_a_block() -> None:
    assert named("a ` b [#1]") == [(1, 1, None)]
    assert named("```\n[#1]") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[#12, user, 2026-03-14 10:11] hello", [(12, 12, None)]),
        (f"[#12 in session {SESSION}, user, 2026-03-14 10:11]", [(12, 12, SESSION)]),
        ("- the harbour [#12 anna; later: #15], replaced by [#20]", [(12, 12, None), (20, 20, None)]),
        ("Redis [#12, replaced by #20]", [(12, 12, None)]),
        ("[#1, #3-#5; #9]", [(1, 1, None), (3, 5, None), (9, 9, None)]),
        ("[#3–5] and [#3 — #5]", [(3, 5, None), (3, 5, None)]),
        ("[#9-#3] and [#0]", [(9, 3, None), (0, 0, None)]),
        ("[#12](https://x.io) and a[#12] and [#12]b", []),
        ("[#1234567890] and [12] and # 12 and [# 12]", []),
    ],
)
def test_forms_of_citations(text: str, expected: list[tuple[int, int, object]]) -> None:
    assert named(text) == expected


def test_only_the_first_citations_of_a_text_are_found() -> None:
    found = find_citations("".join(f"[#{n}] " for n in range(1, 100)))

    assert [one.from_position for one in found] == list(range(1, MOST_CITATIONS + 1))


@pytest.mark.parametrize(
    "text",
    [
        'You said "we use Redis" [#12].',
        'You said "we use Redis" ([#12]).',
        "You said “we use Redis”, [#12].",
        "Du sagtest „we use Redis“ [#12].",
        "Du sagtest »we use Redis« [#12].",
        "Tu as dit « we use Redis » [#12].",
        "You said ‘we use Redis’ [#12].",
        "You said 'we use Redis' — [#12].",
        '[#12]: "we use Redis", so it is.',
        "[#12] “we use Redis”",
        "[#12]: „we use Redis“",
    ],
)
def test_a_quotation_directly_beside_a_citation_belongs_to_it(text: str) -> None:
    assert quotation_in(text) == "we use Redis"


@pytest.mark.parametrize(
    "text",
    [
        'The "old" index was replaced [#12].',
        'He said "yes". [#12] is about another thing.',
        '- "yes"\n- [#12] no',
        "the 5\" disks' size [#12]",
        'x `"code"` [#12]',
        '[#12] says: "" and no more',
        '"' + "long " * 500 + '" [#12]',
    ],
)
def test_other_marks_quote_nothing(text: str) -> None:
    assert quotation_in(text) == ""


def test_each_quotation_belongs_to_one_citation() -> None:
    def quotations(text: str) -> list[str]:
        return [found.quotation for found in find_citations(text)]

    assert quotations('"a b" [#1], "c d" [#2]') == ["a b", "c d"]
    assert quotations('[#1]: "a b", [#2]: "c d"') == ["a b", "c d"]
    assert quotations('[#1] "c d" [#2]') == ["", "c d"]
    assert quotations('"a b" [#1, #2] "c d" [#3] [#4]') == ["", "", "", ""]


def test_apostrophes_do_not_end_a_quotation() -> None:
    assert quotation_in("He said 'I don't know' [#12]") == "I don't know"
    assert quotation_in("He said ‘I don’t know’ [#12]") == "I don’t know"


@pytest.mark.parametrize(
    "quotation",
    [
        "we use Redis",
        "WE  use\nredis",
        "use ‘Redis’ …",
        "... we use Redis, since",
        "We use Redis [...] insert only.",
        "it isn't",
        "since it isn’t … insert only",
        "…",
    ],
)
def test_quotations_are_compared_without_case_space_marks_and_omissions(quotation: str) -> None:
    assert contains_quotation(fold_text('We use "Redis",  since it isn\'t\tbig: **insert** only, mostly.'), quotation)


@pytest.mark.parametrize("quotation", ["we use hash", "insert … Redis", "since it is not", "we Redis"])
def test_other_words_or_another_order_are_not_contained(quotation: str) -> None:
    assert not contains_quotation(fold_text("We use Redis, since it isn't big: insert only."), quotation)


@given(st.text(st.sampled_from("ab \n\"'…."), min_size=1), st.data())
def test_every_part_of_a_text_is_contained(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))

    assert contains_quotation(
        fold_text(text.replace("…", "").replace(".", "")), text[start:end].replace(".", "").replace("…", "")
    )


def test_a_citation_is_a_value() -> None:
    assert find_citations("[#1]") == (Citation(1, 3, 1, 1),)
