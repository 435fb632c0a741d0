"""What Slack is shown of a model's Markdown, and where it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from app.slack.markdown import as_slack, closing, cut_before, is_in_fence, part_of, settled

PIECES = st.sampled_from(
    ["word ", "\n", "\n\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |", "```\n", "```python\n", "code `x` ", "- item ",
     "![pic](http://x.io/p.png) ", "[label](https://x.io) ", "<!channel> ", "**bold** ", "# Head", "漢字 "]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=25).map("".join)


def test_a_table_becomes_aligned_text() -> None:
    table = "Look:\n| name | 数 |\n|:--|--:|\n| a | 12 |\n| 漢字 | 3 \\| 4 |\nThat is all."

    assert as_slack(table) == ("Look:\n```\nname  数\n----  -----\na     12\n漢字  3 | 4\n```\nThat is all.")


def test_what_would_ring_or_link_has_no_effect_even_in_code() -> None:
    text = "<!channel> <!here|x> <@U123> <#C1> `<!everyone>`\n```\n<!subteam^S1>\n<!DOCTYPE html>\n```"

    shown = as_slack(text)

    for sign in ("<!c", "<!h", "<@", "<#", "<!e", "<!s"):
        assert sign not in shown
    assert "<!DOCTYPE html>" in shown


def test_images_are_not_fetched_and_odd_links_lead_nowhere() -> None:
    assert as_slack("![a](https://evil.io/?q=secret)") == "a (`https://evil.io/?q=secret`)"
    assert as_slack("[ok](https://a.io/b) [no](javascript:x) `[code](y)`") == "[ok](https://a.io/b) no `[code](y)`"


def test_code_and_ordinary_markdown_stay_as_they_are() -> None:
    text = "# Title\n**bold** _it_ ~~no~~\n- one\n1. two\n> quote\n```python\nx = [1](2)\n| no | table |\n```\n"

    assert as_slack(text) == text


def test_a_cut_code_block_is_closed_and_opened_again() -> None:
    text = "Look\n```\none\ntwo\n```\ndone"
    at = text.index("two")

    assert part_of(text, 0, at) == "Look\n```\none\n```"
    assert part_of(text, at, len(text)) == "```\ntwo\n```\ndone"
    assert closing(text, at) == "```"
    assert not is_in_fence(text, len(text))


def test_long_text_is_cut_at_paragraphs_then_lines_then_words() -> None:
    assert cut_before("a" * 60 + "\n\n" + "b" * 60, 0, 100) == 62
    assert cut_before("a" * 60 + "\n" + "b" * 60, 0, 100) == 61
    assert cut_before("a" * 60 + " " + "b" * 60, 0, 100) == 61
    assert cut_before("a" * 120, 0, 100) == 100
    assert cut_before("short", 0, 100) == 5


@given(TEXTS, st.integers(0, 400))
def test_what_is_settled_never_changes(text: str, length: int) -> None:
    beginning = text[:length]

    early = as_slack(beginning[: settled(beginning)])

    assert as_slack(text).startswith(early)


@given(TEXTS, st.integers(20, 60))
def test_pieces_hold_all_of_the_text_in_order(text: str, limit: int) -> None:
    shown, at, pieces = as_slack(text), 0, list[str]()
    while at < len(shown):
        end = cut_before(shown, at, limit)
        assert at < end <= at + limit
        pieces.append(part_of(shown, at, end))
        at = end

    together = "".join("".join(pieces).replace("```", "").split())
    assert together == "".join(shown.replace("```", "").split())
