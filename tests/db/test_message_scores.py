"""Properties of the scores that messages get from the index entries of a query's terms."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from throughline.db.search.entries import ANSWER_SHIFT, LENGTH_SHIFT
from throughline.db.search.scores import (
    SESSION_SHIFT,
    Corpus,
    Entries,
    Ranking,
    Scores,
    Terms,
    full_score,
    score_messages,
)

RANKING = Ranking()
TERMS = 4
Found = dict[tuple[int, int, int], tuple[int, int]]
"""Length and count of each occurrence, by session, position and term."""

occurrences = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(1, 80), st.integers(0, TERMS - 1)),
    st.tuples(st.integers(0, 15), st.integers(1, 15)),
    min_size=1,
    max_size=60,
)


def entries_of(found: Found, answers: frozenset[int] = frozenset()) -> Entries:
    keys = np.array([(session << SESSION_SHIFT) + position for session, position, _ in found])
    is_answer = np.array([position in answers for _, position, _ in found], dtype=np.int64)
    numbers = np.array([(length << LENGTH_SHIFT) + count for length, count in found.values()])
    return Entries(
        keys=keys,
        terms=np.array([term for _, _, term in found]),
        numbers=numbers + (is_answer << ANSWER_SHIFT),
        episode_starts=np.unique(np.concatenate((keys[::7], np.arange(3) << SESSION_SHIFT))),
        corpus=Corpus(session_count=3, message_count=240, term_count=9_600),
    )


def terms_of(entries: Entries, *, is_word: bool = True) -> Terms:
    messages = np.bincount(entries.terms, minlength=TERMS).astype(float)
    return Terms(np.ones(TERMS), messages, np.array([True, *[is_word] * (TERMS - 1)]), np.ones(TERMS))


def scored(entries: Entries, ranking: Ranking = RANKING, *, is_word: bool = True) -> Scores:
    return score_messages(entries, terms_of(entries, is_word=is_word), ranking, 100)


@given(occurrences)
def test_each_message_with_a_term_is_scored_once_and_above_zero(found: Found) -> None:
    entries = entries_of(found)
    scores = scored(entries)

    assert np.all(np.diff(scores.keys) > 0)
    assert np.isfinite(scores.scores).all()
    assert set(entries.keys) <= set(scores.keys[scores.scores > 0])


@given(occurrences)
def test_messages_beyond_reach_of_a_term_get_no_score(found: Found) -> None:
    entries = entries_of(found)
    scores = scored(entries, replace(RANKING, episode=0.0))

    for key in scores.keys[scores.scores > 0]:
        assert np.abs(entries.keys - key).min() <= RANKING.reach


@given(occurrences)
def test_a_filter_leaves_only_what_matches_and_what_stands_around_it(
    found: Found,
) -> None:
    entries = entries_of(found)
    matching = np.unique(entries.keys)[::3]
    scores = score_messages(entries, terms_of(entries), RANKING, 100, matching)

    for key in scores.keys:
        assert np.abs(matching - key).min() <= RANKING.reach


@given(occurrences)
def test_terms_of_authors_and_days_alone_are_scored_too(found: Found) -> None:
    only_beside = {place: entry for place, entry in found.items() if place[2] > 0}
    if only_beside:
        assert scored(entries_of(only_beside), is_word=False).scores.max() > 0


@given(st.integers(9, 15), st.integers(1, 15))
def test_a_long_answer_scores_less_than_a_statement_of_that_length(length: int, count: int) -> None:
    found = {(0, 10, 0): (length, count), (0, 60, 0): (length, count)}
    scores = scored(entries_of(found, frozenset({60})))
    by_position = dict(zip(scores.keys.tolist(), scores.scores.tolist(), strict=True))

    assert by_position[60] < by_position[10]


def test_a_message_with_every_word_once_has_about_the_full_score() -> None:
    found = {(0, 10, term): (7, 1) for term in range(TERMS)}
    entries = replace(entries_of(found), corpus=Corpus(1, 240, 240 * 42))
    alone = replace(RANKING, episode=0.0, passage=0.0)
    scores = scored(entries, alone)

    assert 0.95 < scores.scores.max() / full_score(terms_of(entries), 240) < 1.05
