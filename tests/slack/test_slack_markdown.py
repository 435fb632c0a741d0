"""What Slack is shown of a model's Markdown."""

import json
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fakes.slack_delivery import SlackStage
from fakes.slack_double import TEAM, say, sign
from fakes.slack_double.payloads import message
from throughline.slack.answers.cut_text import closing, cut_before, is_in_fence, part_of
from throughline.slack.answers.markdown import ZERO_WIDTH_SPACE, settled, to_slack

_PIECES = st.sampled_from(
    ["word ", "\n", "\n\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |", "```\n", "```python\n", "code `x` ", "- item ",
     "![pic](http://x.io/p.png) ", "[label](https://x.io) ", "<!channel> ", "**bold** ", "# Head", "漢字 ", "@here ",
     "````\n", "~~~\n", "   ```\n", "> ```\n", "> ", "1. ```sh\n", "1. ", "```x = 1```", "`", "``", "\\", "\t",
     "handlers[name](event)\n", "        ", "&lt;", "|", "~~~sh\n```\n", "](javascript:", "@"]
)  # fmt: skip
TEXTS = st.lists(_PIECES, max_size=40).map("".join)


BROKEN = f"<{ZERO_WIDTH_SPACE}"
UNLINKED = f"]{ZERO_WIDTH_SPACE}"
CODE = st.lists(
    st.sampled_from(
        ["x = handlers[name](event)", "", "    ```", "  | a |", "|-|", "~~~", "![a](b)", "`` ` ``", "**a**", "> b"]
    )
).map("\n".join)  # fmt: skip


def test_a_table_becomes_aligned_text() -> None:
    table = "Look:\n| name | 数 |\n|:--|--:|\n| a | 12 |\n| 漢字 | 3 \\| 4 |\nThat is all."

    assert to_slack(table) == ("Look:\n```\nname  数\n----  -----\na     12\n漢字  3 | 4\n```\nThat is all.")


def test_marks_and_links_in_an_aligned_table_are_written_out() -> None:
    table = "| **a** | `b` |\n|---|---|\n| [docs](https://x.io) | `c` |\n"

    assert to_slack(table) == "```\na                    b\n-------------------  -\ndocs (https://x.io)  c\n```\n"


def test_code_in_a_table_keeps_its_signs() -> None:
    table = "|a|b|\n|-|-|\n| `2**10**2` | `__init__` |\n| `a[0](x)` | ``x ` y`` |\n"

    assert to_slack(table) == "```\na         b\n--------  --------\n2**10**2  __init__\na[0](x)   x ` y\n```\n"


def test_a_table_too_wide_for_a_line_becomes_a_list() -> None:
    long = "word " * 30
    table = f"| name | what it **does** | |\n|---|---|---|\n| a | {long}| [x](https://x.io) |\n| b | | |\n"

    assert to_slack(table) == (f"- **name**: a; **what it does**: {long.strip()}; [x](https://x.io)\n- **name**: b\n")


def test_one_long_cell_does_not_swell_a_table() -> None:
    rows = "|a|b|\n" * 2000
    table = f"|{'x' * 90}|{'y' * 39}|\n|-|-|\n{rows}|{'long ' * 200}|b|\n"

    assert len(to_slack(table)) < 5 * len(table)


def test_rows_shorter_than_the_head_are_not_filled_up() -> None:
    table = "|" * 2000 + "\n|-|\n" + "|\n" * 2000

    assert len(to_slack(table)) < 5 * len(table)


def test_what_would_ring_or_link_has_no_effect_even_in_code() -> None:
    text = "<!channel> <!here|x> <@U123> <#C1> `<!everyone>`\n```\n<!subteam^S1>\n<!DOCTYPE html>\n```"

    shown = to_slack(text)

    for mark in ("<!c", "<!h", "<@", "<#", "<!e", "<!s"):
        assert mark not in shown
    assert "<!DOCTYPE html>" in shown


@pytest.mark.parametrize(
    "text",
    [
        "<https://evil.io|https://bank.io>",
        "<slack://open>",
        "<javascript:x>",
        "<\\!channel>",
        "<\\@U123>",
        "<&#33;channel>",
    ],
)
def test_forms_that_slack_could_read_as_its_own_are_broken(text: str) -> None:
    assert to_slack(f"See {text} now") == f"See {text.replace('<', BROKEN)} now"


def test_encoded_brackets_and_broadcasts_are_broken_too() -> None:
    assert to_slack("&lt;!channel&gt; &#60;@U1>") == f"&lt;{ZERO_WIDTH_SPACE}!channel&gt; &#60;{ZERO_WIDTH_SPACE}@U1>"
    assert to_slack("@channel @Here, (_@everyone_)") == "@x @x, (_@x_)".replace("x", "{}").format(
        f"{ZERO_WIDTH_SPACE}channel", f"{ZERO_WIDTH_SPACE}Here", f"{ZERO_WIDTH_SPACE}everyone"
    )


def test_addresses_stay_as_they_are() -> None:
    text = "<https://a.io/b?c=d> <mailto:a@here.com> a@channel.com https://a.io/@here a < b 1<2 `npm i @here/maps`"

    assert to_slack(text) == text


def test_images_are_not_fetched_and_odd_links_lead_nowhere() -> None:
    assert to_slack("![a](https://evil.io/?q=secret)") == "a (`https://evil.io/?q=secret`)"
    assert to_slack("[ok](https://a.io/b) [no](javascript:x) `[code](y)`") == (
        f"[ok](https://a.io/b) [no{UNLINKED}(javascript:x) `[code](y)`"
    )


def test_a_link_that_names_another_address_shows_where_it_leads() -> None:
    assert to_slack("[https://bank.io](https://evil.io)") == "https://bank.io (https://evil.io)"
    assert to_slack("[www.bank.io](https://www.bank.io/)") == "[www.bank.io](https://www.bank.io/)"


@pytest.mark.parametrize(
    "label",
    [
        "good.io",
        "**https://good.io**",
        "`https://good.io`",
        '"www.good.io"',
        "Log in at good.io",
        "a good.io/x `b` page",
    ],
)
def test_a_label_that_names_a_host_anywhere_has_to_lead_there(label: str) -> None:
    assert to_slack(f"[{label}](https://evil.io/good.io)") == f"{label} (https://evil.io/good.io)"
    assert to_slack(f"[{label}](https://www.good.io/x)") == f"[{label}](https://www.good.io/x)"


def test_names_of_files_and_products_are_no_hosts() -> None:
    text = "[README.md](https://a.io/x), [Node.js](https://nodejs.org), [`main.py`](https://a.io), [v1.2](https://a.io)"

    assert to_slack(text) == text


def test_words_that_only_look_like_a_link_keep_all_their_signs() -> None:
    assert to_slack("call handlers[name](event) now") == f"call handlers[name{UNLINKED}(event) now"
    assert to_slack("vector<std::string> a") == "vector<std::string> a"
    assert to_slack("```java\nList<@NonNull String> x;\n```") == "```java\nList<@NonNull String> x;\n```"


def test_behind_a_span_left_open_nothing_is_code_up_to_the_end_of_the_paragraph() -> None:
    shown = to_slack("a `\n`[x](javascript:y) @here`\n\n`[x](javascript:y) @here`")

    assert shown == f"a `\n`[x{UNLINKED}(javascript:y) @{ZERO_WIDTH_SPACE}here`\n\n`[x](javascript:y) @here`"


def test_code_behind_the_fence_itself_is_shown() -> None:
    query = "SELECT a, b, c FROM orders WHERE customer_id = 42"

    assert to_slack(f"```{query}\nORDER BY 1\n```") == f"```\n{query}\nORDER BY 1\n```"


def test_long_names_of_columns_stand_once_above_the_list() -> None:
    name = "This name is longer than forty characters, really"

    assert to_slack(f"|{name}|z*y|\n|-|-|\n|{'a' * 100}|b|\n") == f"- {name}; z*y\n- {'a' * 100}; b\n"


def test_links_in_pieces_or_defined_elsewhere_lead_nowhere_odd() -> None:
    kept = f"]{ZERO_WIDTH_SPACE}"

    assert to_slack("[`a`](javascript:x)") == f"[`a`{kept}(javascript:x)"
    assert to_slack("[1]: javascript:x") == f"[1{kept}: javascript:x"
    assert to_slack("![a [b]](https://evil.io)") == f"!{ZERO_WIDTH_SPACE}[a [b]{kept}(https://evil.io)"
    assert to_slack("[`a`](https://a.io)\n[1]: https://a.io") == f"[`a`](https://a.io)\n[1{kept}: https://a.io"


def test_code_and_ordinary_markdown_stay_as_they_are() -> None:
    text = "# Title\n**bold** _it_ ~~no~~\n- one\n1. two\n> quote\n```python\nx = [1](2)\n| no | table |\n```\n"

    assert to_slack(text) == text


@pytest.mark.parametrize(
    "code",
    [
        "`handlers[name](event)`",
        "``a ` handlers[name](event)``",
        "`C:\\` and `[x](y)`",
        "```x = [1](2)```",
        "\\\\`[x](y)`",
    ],
)
def test_code_within_a_line_stays_as_it_is(code: str) -> None:
    assert to_slack(f"Call {code} there.") == f"Call {code} there."


def test_an_escaped_backtick_begins_no_code() -> None:
    assert to_slack("\\`[x](y)\\`") == f"\\`[x{UNLINKED}(y)\\`"


def test_a_fence_in_an_item_or_a_quote_is_taken_out_of_it() -> None:
    item = "1. ```sh\n   ls\n     -a\n   ```\n2. next"
    indented = "- see\n      ```py\n      handlers[name](event)\n      ```\nafter"
    quoted = "> ```\n> a[b](c)\n>   d\nafter"

    assert to_slack(item) == "1. \n```sh\nls\n  -a\n```\n2. next"
    assert to_slack(indented) == "- see\n```py\nhandlers[name](event)\n```\nafter"
    assert to_slack(quoted) == "```\na[b](c)\n  d\n```\nafter"


def test_a_block_ends_only_at_a_fence_like_its_own() -> None:
    longer = "````md\n```py\na[b](c)\n```\n````\n[x](y)"
    tildes = "~~~md\n```\na[b](c)\n```\n~~~\n"
    in_a_line = "```x = 1```\n[x](y)"
    deeper = "```py\n    ```\na[b](c)\n``` py\n```"

    assert to_slack(longer) == f"````md\n```py\na[b](c)\n```\n````\n[x{UNLINKED}(y)"
    assert to_slack(tildes) == "````md\n```\na[b](c)\n```\n````\n"
    assert to_slack(in_a_line) == f"```x = 1```\n[x{UNLINKED}(y)"
    assert to_slack(deeper) == deeper


@given(CODE, st.sampled_from(["```", "````", "~~~", "~~~~~"]), st.sampled_from(["", "> ", "  ", "      "]))
def test_code_is_shown_as_any_reader_of_markdown_would(code: str, marks: str, before: str) -> None:
    lines = [f"{marks}py", *code.split("\n"), marks]

    shown = to_slack("\n".join(f"{before}{line}" for line in lines))

    assert _code(shown) == _code("\n".join(lines))


def _code(text: str) -> str:
    return next(token.content for token in MarkdownIt().parse(text) if token.type == "fence")


@given(TEXTS, st.integers(0, 400))
def test_what_is_settled_never_changes(text: str, length: int) -> None:
    beginning = text[:length]

    early = to_slack(beginning[: settled(beginning)])

    assert to_slack(text).startswith(early)


@given(TEXTS, TEXTS)
def test_what_a_blank_line_settles_never_changes_even_without_it(text: str, more: str) -> None:
    early = to_slack(text[: settled(f"{text}\n\n")])

    assert to_slack(text).startswith(early)
    assert to_slack(f"{text}\n\n{more}").startswith(early)


@given(TEXTS)
def test_what_says_something_is_never_shown_as_nothing(text: str) -> None:
    assert bool(to_slack(text).strip()) == bool(text.strip())


LINES = st.lists(st.text(st.sampled_from("ab `~>|[]()"), max_size=12), max_size=30)


def test_a_cut_code_block_is_closed_and_opened_again() -> None:
    text = "Look\n```py\none\ntwo\n```\ndone"
    at = text.index("two")

    assert part_of(text, 0, at) == "Look\n```py\none\n```"
    assert part_of(text, at, len(text)) == "```py\ntwo\n```\ndone"
    assert closing(text, at) == "```"
    assert not is_in_fence(text, len(text))


def test_a_cut_block_is_opened_again_with_a_fence_of_its_length() -> None:
    text = "````\n```\none\n```\ntwo\n````"
    at = text.index("two")

    assert part_of(text, 0, at) == "````\n```\none\n```\n````"
    assert part_of(text, at, len(text)) == "````\ntwo\n````"


def test_a_cut_code_span_is_closed_and_opened_again() -> None:
    text = "See ``a `b` @channel`` there."
    at = text.index("@")

    assert part_of(text, 0, at) == "See ``a `b` ``"
    assert part_of(text, at, len(text)) == "``@channel`` there."


def test_a_line_that_begins_like_a_fence_is_cut_as_what_it_is() -> None:
    text = "```" + "x" * 100 + "```"

    assert part_of(text, 0, 50) == "```" + "x" * 47 + "```"
    assert part_of(text, 50, len(text)) == "```" + "x" * 53 + "```"


def test_long_text_is_cut_at_paragraphs_then_lines_then_words() -> None:
    assert cut_before("a" * 60 + "\n\n" + "b" * 60, 0, 100) == 62
    assert cut_before("a" * 60 + "\n" + "b" * 60, 0, 100) == 61
    assert cut_before("a" * 60 + " " + "b" * 60, 0, 100) == 61
    assert cut_before("a" * 120, 0, 100) == 100
    assert cut_before("short", 0, 100) == 5


def test_no_cut_tears_the_line_that_opens_a_block_or_leaves_it_behind() -> None:
    text = "a" * 60 + "\n```python\n" + "b" * 60

    assert cut_before(text, 0, 65) == 61
    assert cut_before(text, 0, 71) == 61


@given(TEXTS, st.integers(110, 160))
@example("word " * 7 + "![pic](http://x.io/p.png) " * 2 + "```x = 1```](javascript:", 110)  # cut in a code span
def test_pieces_hold_all_of_the_text_in_order(text: str, limit: int) -> None:
    shown = to_slack(text)

    assert "".join(_own_text(shown, piece) for piece in _pieces(shown, limit)) == shown


@given(LINES, st.integers(40, 80))
def test_code_in_pieces_is_the_code_of_the_whole(lines: list[str], limit: int) -> None:
    written = "\n".join(["Look:", "", "`````py", *lines, "`````", "", "done"])
    shown = to_slack(written)

    pieces = "".join(
        token.content
        for piece in _pieces(shown, limit)
        for token in MarkdownIt().parse(piece.shown)
        if token.type == "fence"
    )

    assert pieces == "".join(f"{line}\n" for line in lines)


class Piece(NamedTuple):
    """A message and where its own text begins and ends in the whole."""

    shown: str
    start: int
    end: int


def _pieces(shown: str, limit: int) -> list[Piece]:
    at, pieces = 0, list[Piece]()
    while at < len(shown):
        end = cut_before(shown, at, limit)
        assert at < end <= at + limit
        pieces.append(Piece(part_of(shown, at, end), at, end))
        at = end
    return pieces


def _own_text(whole: str, piece: Piece) -> str:
    """Return what a piece holds of the text: without the marks that end code where it is cut, and begin it again."""
    marks = closing(whole, piece.start).strip()
    assert piece.shown.startswith(marks)
    ended = piece.shown.removesuffix(closing(whole, piece.end))
    return ended.partition("\n")[2] if is_in_fence(whole, piece.start) else ended.removeprefix(marks)


GENUINE = message(say("hello"))
EVENT = GENUINE["event"]
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def changed(**fields: object) -> str:
    return json.dumps(GENUINE | fields)


def changed_event(**fields: object) -> str:
    assert isinstance(EVENT, dict)
    return changed(event=EVENT | fields)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        *((body, JSON) for body in ("", "[]", "null", '"x"', "7", "{", "[" * 5_000, '{"a":' * 5_000)),
        ('{"a":' * 100 + "1" + "}" * 100, JSON),
        *((body, JSON) for body in (changed(event=None), changed(event=[]), changed(event="x"), changed(event={}))),
        (changed(event={"type": 3}), JSON),
        (changed(event_id=None), JSON),
        (changed(event_id="Ev\0"), JSON),
        (changed(team_id=[TEAM]), JSON),
        (changed(authorizations=[]), JSON),
        (changed(authorizations=["x"]), JSON),
        (changed(authorizations={}), JSON),
        (changed_event(channel="C\0"), JSON),
        (changed_event(ts="1\0"), JSON),
        (changed_event(user="U\ud800"), JSON),
        (changed_event(user=5), JSON),
        *((f"payload={payload}", FORM) for payload in ("%7B", "", "null", "%5B%5D", "x")),
        (f"command=%2Fagent&text=help&team_id={TEAM}&user_id=U%00", FORM),
    ],
)
async def test_a_signed_body_that_is_malformed_is_refused_with_a_sentence(
    stage: SlackStage, body: str, content_type: str
) -> None:
    headers = sign(body) | {"Content-Type": content_type}

    answer = await stage.client.post("/slack/events", content=body, headers=headers)

    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert await stage.rows("select 1 from slack_events union all select 1 from users") == []


async def test_a_text_with_nul_is_taken(stage: SlackStage) -> None:
    answered = await stage.sender.once(message(say("one\0two")))

    assert answered.status == 200
    assert await stage.run_texts() == ["one\N{REPLACEMENT CHARACTER}two"]
