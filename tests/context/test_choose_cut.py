"""Where a conversation is cut, and what the prompt is expected to take afterwards."""

from context.strategies import Said, stored
from throughline.context.compaction.compaction_cut import CutTask, choose_cut
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.domain.message import Role


def test_a_summary_of_little_is_expected_to_be_as_large_as_an_adopted_one_may_be() -> None:
    said = [Said(role, "word") for _ in range(2) for role in (Role.USER, Role.ASSISTANT)]
    rows = stored(said, lambda _: 10)
    task = CutTask(
        rows=rows, row_tokens=[10] * len(rows), fixed_tokens=1000, summary_tokens=0, summary_limit=500, min_recent=2,
        kept_elsewhere=0, running=0, kept_rows=frozenset(), target_tokens=0, enough_tokens=0, may_cut_at_end=False,
    )  # fmt: skip

    cut = choose_cut(task)

    assert cut is not None
    assert (cut.index, cut.tokens_after) == (2, 1000 + 20 + SMALL_SUMMARY_TOKENS)
