"""The scores of messages: BM25 over the terms of a query, extended by what stands around a message.

A message scores for each query term it contains, and less for a term that only a neighbour contains, decreasing with
the distance. The reason: an answer is often a turn away from the words of the question. Each term counts once, with its
best score. So a part of the conversation with all query words ranks above one that repeats a single word.

Messages between two long pauses form an episode. An episode is scored like one long message, and a share of its score
is added to each of its messages. Passages, a dozen messages in a row, are scored in the same way: an answer is often
spread over several messages, and many conversations have no pauses. The sum is multiplied for how much of the query the
passage has.

A long answer of the assistant counts less than what people say, and than what tools return: it repeats their words,
and is seldom where something was said first.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from throughline.db.search.entries import ANSWER_SHIFT, LENGTH_SHIFT, LENGTH_STEP, MOST
from throughline.domain.message import LAST_POSITION

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SESSION_SHIFT = 32
"""A message's key is `session << SESSION_SHIFT | position`, where sessions are numbered as they are found."""

HALF_PASSAGE = 6
"""Messages in half a passage. Passages overlap by half, so each message is in two."""

LONG_ANSWER = 100
"""Terms above which an answer is long, and counts less. Stop words are no terms."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Parameters of the ranking, tuned by benchmarks/retrieval.py on one half of its data.

    `saturation` and `length_share` are BM25's k1 and b. A term in a neighbouring message counts `nearby` times its
    score there, decreasing linearly with the distance, and nothing beyond `reach` messages. A term in the message
    before counts `previous` times its score, because that message is often the question; in an answer of the assistant
    before it, nothing. A term in the assistant's answer to a message counts `in_answer` times its score. A matching
    author counts `author` times a matching word, and an episode's score `episode` times. A passage is scored with a
    saturation of `passage_saturation`; with p for its share, at most 1, of the score of a message that has every
    word, it multiplies by 1 + `passage` · p. An answer of the assistant is multiplied by `answer`, or by
    `answer_if_of_user` if the query is about the user; one of n terms
    also by (LONG_ANSWER / n) to the power `long_answer`, which is limited to the range from `least_long_answer` to 1.

    The other values multiply the score of messages whose author the query names (`named`), that only ask other people
    (`question`), that mention a time when the query asks for one (`tells_when`), that were written on a day the query
    names (`on_day`), and that have a better message within `reach` (`beside_better`). A message shorter than
    SHORT_BYTES (rank.py), its tool calls included, counts by its share of that length to the power `short`; a tool's
    result counts fully.
    """

    saturation: float = 1.2
    length_share: float = 0.6
    nearby: float = 0.3
    reach: int = 6
    author: float = 1.5
    previous: float = 0.7
    in_answer: float = 0.4
    episode: float = 0.7
    passage: float = 3.0
    passage_saturation: float = 10.0
    answer: float = 1.0
    answer_if_of_user: float = 0.7
    long_answer: float = 0.6
    least_long_answer: float = 0.35
    beside_better: float = 0.75
    named: float = 1.2
    question: float = 0.8
    tells_when: float = 1.3
    on_day: float = 2.0
    short: float = 0.3


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a query, one value in each array for a term.

    `weights` are those in the query. `messages` is the number of messages that have the term. `is_word` is False for
    the terms of authors and days. `wanted` is the part of the term's score that counts in `full_score`.
    """

    weights: Floats
    messages: Floats
    is_word: Flags
    wanted: Floats


@dataclass(frozen=True, slots=True)
class Corpus:
    """The size of the searched sessions; `term_count` is the number of all terms of all their messages."""

    session_count: int
    message_count: int
    term_count: int


@dataclass(frozen=True, slots=True)
class Entries:
    """The index entries of the terms, one value in each array for a term in a message.

    `keys` are the messages' keys, `terms` the numbers of the terms, and `numbers` the entries (entries.py), of which
    `answer`, `length` and `count` are read here. `episode_starts` are the sorted keys of the positions where sessions
    and episodes begin.
    """

    keys: Numbers
    terms: Numbers
    numbers: Numbers
    episode_starts: Numbers
    corpus: Corpus


@dataclass(frozen=True, slots=True)
class Scores:
    """Keys of messages, each once, and their scores."""

    keys: Numbers
    scores: Floats

    def best(self, count: int) -> "Scores":
        """Return the `count` best of those with a score above 0, best first; of equal ones the later first."""
        order = np.lexsort((-self.keys, -self.scores))[:count]
        order = order[self.scores[order] > 0]
        return Scores(self.keys[order], self.scores[order])

    def at(self, keys: Numbers) -> Floats:
        """Return the scores of these keys, 0 for one that is not there. `self.keys` are sorted."""
        places = np.searchsorted(self.keys, keys)  # one behind the last for a key above all
        return np.where(np.append(self.keys, -1)[places] == keys, np.append(self.scores, 0.0)[places], 0.0)


def score_messages(
    entries: Entries, terms: Terms, ranking: Ranking, candidates: int, passing: Numbers | None = None
) -> Scores:
    """Return the scores of the best `candidates` messages, and of those within reach of one.

    Candidates are chosen by their own terms and their episodes. With `passing`, the keys of the messages that pass a
    filter, only these are candidates; those within reach of one need not pass it.
    """
    frequencies = _frequencies(entries, ranking)
    scores = (
        terms.weights[entries.terms] * rarity(terms.messages, entries.corpus.message_count)[entries.terms] * frequencies
    )
    keys, places = np.unique(entries.keys, return_inverse=True)
    answers = Scores(keys, _answer_weights(entries, places, ranking))
    episodes = _episode_scores(entries, terms, frequencies, ranking)
    alone = np.bincount(places, scores) * answers.scores + episodes.at(_episodes_of(entries, keys))
    alone = alone if passing is None else np.where(np.isin(keys, passing), alone, 0.0)
    reach = np.arange(-ranking.reach, ranking.reach + 1)
    best = Scores(keys, alone).best(candidates)
    if not len(best.keys):
        return best
    around = np.unique(best.keys[:, None] + reach)
    near = _near_scores(entries, scores, around, ranking)
    near += episodes.at(_episodes_of(entries, around))
    near *= np.where(np.isin(around, keys), answers.at(around), 1.0)
    passages = _at_passage(entries, terms, frequencies, around, ranking)
    shares = np.minimum(passages / full_score(terms, entries.corpus.message_count), 1.0)
    return Scores(around, near * (1 + ranking.passage * shares))


@dataclass(frozen=True, slots=True)
class _Found:
    """Occurrences of terms in groups of messages: the group, the number of the term, its frequency in a message."""

    groups: Numbers
    terms: Numbers
    frequencies: Floats


def rarity(messages: Floats, total: float) -> Floats:
    """Return the inverse frequency of terms that `messages` of `total` texts have, above 0.

    It is BM25's (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with 1 added to the quotient.
    """
    return np.log1p((np.maximum(total - messages, 0) + 0.5) / (messages + 0.5))


def full_score(terms: Terms, message_count: float) -> float:
    """Return the score of a message that has every word of the query once."""
    scores = terms.weights * terms.wanted * rarity(terms.messages, message_count)
    return float(scores[terms.is_word].sum())


def _frequencies(entries: Entries, ranking: Ranking) -> Floats:
    """Return BM25's frequency of each term in each message: saturated, and less in a long message."""
    counts, steps = entries.numbers & MOST, entries.numbers >> LENGTH_SHIFT & MOST
    mean = max(entries.corpus.term_count / entries.corpus.message_count, 1)
    lengths = 2.0 ** (LENGTH_STEP * (steps - 1)) / mean
    lengths = np.where(steps == 0, 1.0, 1 - ranking.length_share + ranking.length_share * lengths)
    return counts * (ranking.saturation + 1) / (counts + ranking.saturation * lengths)


def _answer_weights(entries: Entries, places: Numbers, ranking: Ranking) -> Floats:
    """Return the factors of the messages, below 1 for long answers; `places` has the index of each entry's message."""
    steps = np.zeros(places.max(initial=-1) + 1)
    np.maximum.at(steps, places, entries.numbers >> LENGTH_SHIFT & MOST)
    is_answer = np.zeros(len(steps), dtype=bool)
    is_answer[places] = _is_answer(entries)
    long = (LONG_ANSWER / 2.0 ** (LENGTH_STEP * (steps - 1))) ** ranking.long_answer
    return np.where(is_answer, ranking.answer * np.clip(long, ranking.least_long_answer, 1.0), 1.0)


def _episode_scores(entries: Entries, terms: Terms, frequencies: Floats, ranking: Ranking) -> Scores:
    """Return what the messages of each episode have of its score. Terms of authors and days are left out."""
    is_word = terms.is_word[entries.terms]
    found = _Found(_episodes_of(entries, entries.keys[is_word]), entries.terms[is_word], frequencies[is_word])
    pauses = np.count_nonzero(entries.episode_starts & LAST_POSITION)
    scores = _group_scores(found, terms, entries.corpus.session_count + int(pauses), ranking.saturation)
    return Scores(scores.keys, ranking.episode * scores.scores)


def _episodes_of(entries: Entries, keys: Numbers) -> Numbers:
    """Return the numbers of the episodes in which these messages stand."""
    return np.searchsorted(entries.episode_starts, keys, "right")


def _at_passage(entries: Entries, terms: Terms, frequencies: Floats, keys: Numbers, ranking: Ranking) -> Floats:
    """Return the scores of the two passages of each of these messages, weighed by its distance from their centres."""
    first = _half_passages(entries.keys)
    found = _Found(np.concatenate((first, first + 1)), np.tile(entries.terms, 2), np.tile(frequencies, 2))
    scores = _group_scores(found, terms, entries.corpus.message_count / HALF_PASSAGE, ranking.passage_saturation)
    halves, parts = _half_passages(keys), ((keys & LAST_POSITION) % HALF_PASSAGE + 0.5) / HALF_PASSAGE
    return (1 - parts) * scores.at(halves) + parts * scores.at(halves + 1)


def _half_passages(keys: Numbers) -> Numbers:
    return (keys >> SESSION_SHIFT << SESSION_SHIFT) + (keys & LAST_POSITION) // HALF_PASSAGE


def _group_scores(found: _Found, terms: Terms, total: float, saturation: float) -> Scores:
    """Return the scores of groups of messages, each scored like one long message.

    `total` is the number of all groups, also of those without a term.
    """
    keys, places = np.unique(found.groups, return_inverse=True)
    pairs, of_pair = np.unique(places * len(terms.weights) + found.terms, return_inverse=True)
    group, term = np.divmod(pairs, len(terms.weights))
    sums = np.bincount(of_pair, found.frequencies)
    having = np.bincount(term, minlength=len(terms.weights)).astype(np.float64)
    scores = terms.weights[term] * rarity(having, total)[term] * sums * (saturation + 1) / (sums + saturation)
    return Scores(keys, np.bincount(group, scores).astype(np.float64))


def _near_scores(entries: Entries, scores: Floats, keys: Numbers, ranking: Ranking) -> Floats:
    """Return for each of these messages the sum over the terms of the best score within reach.

    `scores` are those of the entries. A score counts less with the distance, see `Ranking`.
    """
    reach = np.arange(-ranking.reach, ranking.reach + 1)
    read = np.unique(keys[:, None] + reach)
    places = np.minimum(np.searchsorted(read, entries.keys), len(read) - 1)
    is_read = read[places] == entries.keys
    by_term = np.zeros((len(read), entries.terms.max(initial=0) + 1))
    by_term[places[is_read], entries.terms[is_read]] = scores[is_read]
    is_answer = np.zeros(len(read), dtype=bool)
    is_answer[places[is_read]] = _is_answer(entries)[is_read]
    own = np.searchsorted(read, keys)  # the keys within reach of each stand around it without a gap
    best = np.zeros((len(keys), by_term.shape[1]))
    for distance in reach:
        shares = _shares(int(distance), is_answer[own + distance], ranking)
        np.maximum(best, shares[:, None] * by_term[own + distance], out=best)
    summed: Floats = best.sum(1)
    return summed


def _shares(distance: int, is_answer: Flags, ranking: Ranking) -> Floats:
    """Return the factors for terms of messages that stand `distance` messages later (negative: earlier)."""
    nearby = 1.0 if distance == 0 else ranking.nearby * (1 - abs(distance) / (ranking.reach + 1))
    match distance:
        case -1:
            return np.where(is_answer, 0.0, ranking.previous)
        case 1:
            return np.where(is_answer, ranking.in_answer, nearby)
        case _:
            return np.full(len(is_answer), nearby)


def _is_answer(entries: Entries) -> Flags:
    return entries.numbers >> ANSWER_SHIFT & 1 > 0
