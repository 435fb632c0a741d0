"""The benchmark of sentences planted among small talk: what it plants, and what counts as survived."""

import random

from benchmarks.canaries import SmallTalkSummariser, plant, summarise
from throughline.domain.message import Role


def count(text: str) -> int:
    return -(-len(text) // 4)


def test_every_sentence_of_a_half_is_planted_among_small_talk() -> None:
    planted = plant("tuned", 1)
    users = "\n".join(text for role, text in planted.said if role is Role.USER)

    assert all(word.casefold() in users.casefold() for canary in planted.canaries for word in canary.words)
    assert planted.said == plant("tuned", 1).said != plant("tuned", 2).said
    assert {canary.kind for canary in planted.canaries} == {
        *("rule", "limit", "fact", "goal", "preference"),
        *("restated", "twins"),
    }


async def test_a_rule_survives_in_a_large_summary_and_not_in_a_small_one() -> None:
    planted = plant("reported", 1)

    small, large = [
        await summarise(planted, SmallTalkSummariser(count, random.Random(1)), share, 2, count) for share in (0.02, 0.5)
    ]

    assert small.tokens < large.tokens
    assert sum(small.kept["rule"]) < sum(large.kept["rule"])
