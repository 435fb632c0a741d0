from datetime import UTC
from io import StringIO
from uuid import UUID

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.command_stage import CommandStage
from fakes.scripted_turns import said
from fakes.wire_shapes import NOW, SESSION_ID, cited_message_out, context_out, message_out, session_out, version_out
from fakes.wire_shapes import preview_out as preview
from throughline.cli.chat.context_commands import draw_changes, draw_version, draw_versions, request_of, versions_named
from throughline.cli.chat.state import ChatState, remark_on_answer
from throughline.cli.client import ServiceClient
from throughline.cli.context_views import MOST_ROWS, draw_preview
from throughline.cli.history_views import draw_cited, draw_message, marked, problems, reading_hint
from throughline.cli.printable import moment, printable
from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput
from throughline.wire.context import PreviewedMessage, PreviewOut, RestoredOut, SegmentToSummarise
from throughline.wire.gauges import is_only_fitted, next_step, percent
from throughline.wire.messages import CitationOut
from throughline.wire.sessions import SummaryVersionOut

COUNTS = st.integers(0, 10**9)
WIDTHS = st.sampled_from([30, 40, 60, 80, 110])


def shown(position: int, form: str, reason: str, *, tokens: int = 0, pinned: bool = False) -> PreviewedMessage:
    role = "tool" if form == "pruned" else "user"
    return PreviewedMessage(position=position, role=role, form=form, reason=reason, tokens=tokens, pinned=pinned)


def segment(first: int, last: int) -> SegmentToSummarise:
    return SegmentToSummarise(from_position=first, through_position=last, message_count=last - first + 1)


def whole(position: int, tokens: int = 10) -> PreviewedMessage:
    return shown(position, "whole", "shown as stored", tokens=tokens)


def pruned(position: int) -> PreviewedMessage:
    return shown(position, "pruned", "an old tool output, shown as a stub", tokens=30)


def test_messages_in_a_row_that_are_shown_alike_are_one_line() -> None:
    drawn = draw_preview(preview(*map(whole, range(5, 11)), pruned(11), whole(12, 7), budget_tokens=6_144), width=80)

    assert drawn.plain.split("\n") == [
        "The next call: 5,900 of 8,192 tokens (72%)",
        "  threshold 5,836 · budget 6,144",
        "  Nothing is changed before it.",
        "  #5-#10      6× whole           60 tokens",
        "  #11            pruned          30 tokens  an old tool output, shown as a stub",
        "  #12            whole            7 tokens",
    ]


def test_a_pin_among_others_has_a_line_of_its_own() -> None:
    pinned = shown(2, "whole", "pinned: always shown", tokens=9, pinned=True)

    lines = draw_preview(preview(pinned, whole(3), whole(4), summarised_through=2), width=80).plain.split("\n")

    assert lines[3] == "  #1-#2 are in the summary"
    assert lines[4].endswith("pinned: always shown")


def test_what_is_not_shown_takes_no_tokens() -> None:
    hidden = shown(1, "trimmed", "left out to make room")

    assert "tokens" not in draw_preview(preview(hidden), width=80).plain.split("\n")[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"action": "prune", "fired": ("pruned", "pruned_aggressively")},
            "⚡ Old tool outputs are shown as stubs. Stages: pruned, pruned aggressively.",
        ),
        (
            {"action": "prune", "fired": ("pruned", "history_truncated")},
            "⚡ Older messages are left out or shortened. Stages: pruned, history truncated.",
        ),
        (
            {"action": "prune", "fired": ("unimportant_left_out",)},
            "⚡ Older messages are left out or shortened. Stages: unimportant left out.",
        ),
        (
            {"action": "adopt", "cause": "threshold"},
            "the prepared summary replaces older messages, because the prompt is above the threshold.",
        ),
        (
            {
                "action": "compact",
                "cause": "messages",
                "summarise": segment(3, 26),
            },
            "24 messages (#3-#26) are summarized, because there are enough new messages (max_messages_before_summary).",
        ),
        (
            {
                "action": "compact",
                "summarise": segment(3, 3),
            },
            "⚡ Before the model is called, 1 message (#3) is summarized.",
        ),
        ({"action": "compact"}, "⚡ Before the model is called, older messages are summarized."),
        ({"action": "fit"}, "⚡ Messages are shortened or left out until the prompt fits."),
        (
            {"action": "fit", "cause": "of_later"},
            "⚡ Messages are shortened or left out until the prompt fits, because of_later.",
        ),
        ({"action": "of_later"}, "⚡ of_later."),
        (
            {"floor_too_high": True, "action": "compact"},
            "What always stays (system prompt, tools, summary, pins, newest messages) leaves too little space.",
        ),
    ],
)
def test_what_happens_first_is_told_in_a_sentence(changes: dict[str, object], words: str) -> None:
    assert words in " ".join(draw_preview(preview(**changes), width=200).plain.split())


def test_what_always_stays_is_no_news_while_nothing_happens() -> None:
    assert "too little room" not in draw_preview(preview(floor_too_high=True), width=200).plain


@pytest.mark.parametrize(
    ("action", "head"),
    [("compact", "Before the summary: 5,900 of"), ("adopt", "The next call: 5,900 of"), ("fit", "The next call: 5,9")],
)
def test_the_head_says_what_the_size_is_of(action: str, head: str) -> None:
    assert draw_preview(preview(action=action), width=80).plain.startswith(head)


def test_on_a_narrow_screen_the_head_is_wrapped() -> None:
    drawn = draw_preview(preview(action="compact", budget_tokens=6_144), width=40).plain.split("\n")

    head = " ".join(" ".join(drawn[:4]).split())
    assert head.startswith("Before the summary: 5,900 of 8,192 tokens (72%) threshold 5,836 · budget 6,144")


def test_a_long_plan_is_cut_to_a_screen_at_its_old_end() -> None:
    messages = [whole(n) if n % 2 else pruned(n) for n in range(1, 201)]

    lines = draw_preview(preview(*messages), width=80).plain.split("\n")

    assert len(lines) == 3 + 1 + MOST_ROWS
    assert lines[3] == f"  … {200 - MOST_ROWS} older messages up to #{200 - MOST_ROWS}"
    assert lines[-1].startswith("  #200")


@given(
    st.builds(
        preview,
        action=st.sampled_from(["none", "prune", "adopt", "compact", "fit", "x" * 200]),
        tokens=COUNTS,
        window=COUNTS,
        cause=st.none() | st.text(max_size=60),
        fired=st.lists(st.text(max_size=60), max_size=6),
        threshold_tokens=COUNTS,
        budget_tokens=COUNTS,
        floor_too_high=st.booleans(),
        summarised_through=COUNTS,
        messages=st.lists(
            st.builds(shown, COUNTS, st.text(max_size=30), st.text(max_size=99), tokens=COUNTS), max_size=30
        ),
    ),
    WIDTHS,
)
def test_no_line_of_a_plan_is_wider_than_the_screen(drawn: PreviewOut, width: int) -> None:
    assert max(cell_len(line) for line in draw_preview(drawn, width=width).plain.split("\n")) <= width


SUMMARIES_WIDTHS = st.integers(20, 200)

PREPARED = version_out(9, version=None, state="prepared", token_count=700, through_position=40)
VERSIONS = (
    PREPARED,
    version_out(2, segments=3, token_count=1_500, through_position=25),
    version_out(1, state="superseded", token_count=400, through_position=9, model=""),
    version_out(0, state="superseded", segments=0, token_count=0, model=""),
)


def test_versions_are_listed_with_number_state_reach_size_and_time() -> None:
    assert draw_versions(VERSIONS, width=80).plain.split("\n") == [
        f"–    prepared   #1-#40       700 tokens {moment(NOW)}  by m",
        f"v2   adopted    #1-#25     1,500 tokens {moment(NOW)}  by m in 3 segments",
        f"v1   superseded #1-#9        400 tokens {moment(NOW)}",
        f"v0   superseded nothing        0 tokens {moment(NOW)}",
    ]
    assert draw_versions((), width=80).plain == "No summary yet."


def test_the_model_of_a_version_is_whole_at_eighty_columns() -> None:
    version = version_out(12, segments=13, token_count=11_500, through_position=1_250, model="openai:gpt-4o-mini")

    assert " by openai:gpt-4o-mini" in draw_versions((version,), width=80).plain


def test_a_version_that_says_the_same_as_an_earlier_one_is_told() -> None:
    again = version_out(3, through_position=9, text="first")
    versions = (
        again,
        version_out(2, state="superseded", text="second"),
        version_out(1, state="superseded", through_position=9, text="first"),
    )

    lines = draw_versions(versions, width=100).plain.split("\n")

    assert [line.endswith("same as v1") for line in lines] == [True, False, False]


def test_a_version_is_shown_with_its_whole_text() -> None:
    drawn = draw_version(version_out(2, text="[#1-#20]\n- Ada moved.\x1b[31m\n\n- It rained."), width=80).plain.split(
        "\n"
    )

    assert drawn[0].startswith("v2   adopted    #1-#20")
    assert drawn[1:3] == ["", "[#1-#20]"]
    assert "- It rained." in drawn
    assert "\x1b" not in "".join(drawn)


def test_what_changed_between_two_versions_is_told_line_by_line() -> None:
    old = version_out(
        1, token_count=30, through_position=9, text="- Ada moved.\n- a\n- b\n- c\n- d\n- It costs 38 euros."
    )
    new = version_out(
        2,
        token_count=40,
        through_position=20,
        text="- Ada moved.\n- a\n- b\n- c\n- d\n- It costs 41 euros.\n- Bob came.",
    )

    assert draw_changes(old, new, width=80).plain.split("\n") == [
        "version 1 (#1-#9) → version 2 (#1-#20): 30 → 40 tokens",
        "  - d",
        "- - It costs 38 euros.",
        "+ - It costs 41 euros.",
        "+ - Bob came.",
    ]
    assert draw_changes(old, old, width=80).plain.endswith("Both versions have the same text.")


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("", ()),
        ("2", ("2",)),
        ("v2 3", ("2", "3")),
        ("00000000-0000-0000-0000-000000000002", ("00000000-0000-0000-0000-000000000002",)),
    ],
)
def test_versions_are_named_by_number_or_id(argument: str, names: tuple[str, ...]) -> None:
    assert versions_named(argument) == names


@pytest.mark.parametrize("argument", ["second", "v", "1 2 3", "1 x", "²"])
def test_what_names_no_version_is_told(argument: str) -> None:
    with pytest.raises(InvalidInput, match="Give "):
        versions_named(argument)


@given(
    st.lists(
        st.builds(
            version_out,
            COUNTS,
            state=st.text(max_size=30),
            segments=COUNTS,
            token_count=COUNTS,
            through_position=COUNTS,
            model=st.text(max_size=99),
            created_at=st.datetimes(timezones=st.just(UTC)),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
    SUMMARIES_WIDTHS,
)
def test_no_line_of_the_versions_is_wider_than_the_screen(versions: tuple[SummaryVersionOut, ...], width: int) -> None:
    assert max(cell_len(line) for line in draw_versions(versions, width=width).plain.split("\n")) <= width


@pytest.mark.parametrize("typed", ["from", "from -1", "from 0x", "from #", "from 99999999999 keep dates", "From +3"])
def test_a_place_that_is_none_is_no_request(typed: str) -> None:
    with pytest.raises(InvalidInput, match="number of a message"):
        request_of(typed)


def test_a_request_may_begin_with_from() -> None:
    assert request_of("from now on keep all dates") == {"instructions": "from now on keep all dates"}
    assert request_of("from #12 keep dates") == {"instructions": "keep dates", "from_position": 12}


INTEGERS = st.integers(-5, 40)


def cited(text: str, named: str, status: str = "valid", session_id: str = SESSION_ID) -> CitationOut:
    first, _, last = named.replace("#", "").partition("-")
    start = text.index(named)
    return CitationOut(
        start=start,
        end=start + len(named),
        from_position=int(first),
        to_position=int(last or first),
        session_id=session_id,
        status=status,
    )


def test_citations_that_are_not_valid_are_marked_in_the_history() -> None:
    text = "See [#1], [#2-#4], [#9] and [#3] \x1b[2J."
    citations = [
        cited(text, "#1"),
        cited(text, "#2-#4", "quotation_not_found"),
        cited(text, "#9", "no_such_message"),
        cited(text, "#3", "a status of a newer service"),
    ]

    drawn = draw_message(cited_message_out(6, content=text, citations=citations))

    assert drawn.plain == "#6 assistant See [#1], [#2-#4 ?], [#9 ?] and [#3] ."
    assert {drawn.plain[span.start : span.end]: span.style for span in drawn.spans if span.style != "cyan"} == {
        "#1": "underline",
        "#2-#4 ?": "yellow",
        "#9 ?": "yellow",
    }


def test_the_text_of_a_summary_marks_and_explains_them() -> None:
    text = "- The harbour [#1], the sea [#9]."
    version = version_out(1, text=text, citations=[cited(text, "#1"), cited(text, "#9", "no_such_message")])

    assert draw_version(version, width=80).plain.split("\n")[1:] == [
        "",
        "- The harbour [#1], the sea [#9 ?].",
        "[#9 ?] there is no such message",
    ]


def test_remarks_are_few_and_name_each_citation_once() -> None:
    text = " ".join(f"[#{n}]" for n in range(1, 7))
    wrong = [cited(text, f"#{n}", "no_such_message") for n in range(1, 7)]

    assert problems([wrong[0], wrong[0]]) == ("[#1 ?] there is no such message",)
    assert problems(wrong)[-1] == "and 3 more citations are not valid"
    assert len(problems(wrong)) == 4


def test_the_hint_names_the_first_valid_citation_of_the_session() -> None:
    text = "[#9] [#2] [#3-#5] [#6]"
    citations = [
        cited(text, "#9", "no_such_message"),
        cited(text, "#2", session_id=str(UUID(int=77))),
        cited(text, "#3-#5"),
        cited(text, "#6"),
    ]

    assert reading_hint(citations, SESSION_ID) == "/read 3-5 shows [#3-#5]"
    assert reading_hint(citations[:2], SESSION_ID) == ""


@given(st.text(st.sampled_from("#1 a😀\x1b[2J")), st.lists(st.tuples(INTEGERS, INTEGERS), max_size=4))
def test_ranges_that_are_wrong_lose_no_text(text: str, ranges: list[tuple[int, int]]) -> None:
    """The service may be another version, and count otherwise."""
    citations = [
        CitationOut(
            start=start, end=end, from_position=1, to_position=1, session_id=SESSION_ID, status="no_such_message"
        )
        for start, end in ranges
    ]

    assert marked(text, citations).replace(" ?", "") == text.replace(" ?", "")
    assert draw_cited(text, []).plain == printable(text)


@pytest.mark.parametrize(
    ("used", "limit", "shown"),
    [
        (0, 10, "0%"),
        (62, 128_000, "<1%"),
        (2, 1000, "<1%"),
        (999, 1000, "99%"),
        (1000, 1000, "100%"),
        (15, 10, "150%"),
        (10**9, 1, ">999%"),
        (5, 0, "–"),
        (5, None, "–"),
    ],
)
def test_percentages_agree_with_the_bar_and_are_told_beyond_a_hundred(used: int, limit: int | None, shown: str) -> None:
    assert percent(used, limit) == shown


@pytest.mark.parametrize(
    ("changes", "is_fitted"),
    [
        ({}, False),
        ({"messages_threshold": None}, True),
        ({"restored": RestoredOut(at_position=4, tokens_since=0, tokens_needed=9)}, True),
        ({"messages_threshold": None, "next_action": "none"}, False),
        ({"messages_threshold": None, "next_trigger": "messages"}, False),
    ],
)
def test_no_summary_is_announced_where_none_comes(changes: dict[str, object], *, is_fitted: bool) -> None:
    context = context_out(**{"next_action": "compact", "next_trigger": "window", "will_trigger": True, **changes})

    assert is_only_fitted(context) is is_fitted
    assert ("left out of the prompt" in next_step(context)) is is_fitted


async def test_the_history_of_a_chat_marks_citations_and_says_how_to_read_them(service: CommandStage) -> None:
    talk = await service.talk(4, texts={1: "the harbour [#9]", 2: 'You said "the sea" [#1], see [#1-#2].'})

    result = await service.run("chat", "--session", talk.session.id, typed="/history\n/read 1-2\n")

    line = '#2 assistant You said "the sea" [#1 ?], see [#1-#2].'
    assert result.stdout.splitlines().count(line) == 2
    assert "#1 user the harbour [#9]" in result.stdout.splitlines()
    assert (
        result.stderr.splitlines()
        == [
            "· [#1 ?] the message does not contain the quotation",
            "· /read 1-2 shows [#1-#2]",
        ]
        * 2
    )


async def test_an_answer_is_followed_by_remarks_on_its_citations(service: CommandStage) -> None:
    service.api.turns.scripts = [said("As you said [#1], ", "and [#7]."), said("No citation.")]

    result = await service.run("chat", typed="hello\nagain\n")

    assert result.stdout == "As you said [#1], and [#7].\nNo citation.\n"
    assert result.stderr.splitlines() == ["· [#7 ?] there is no such message", "· /read 1 shows [#1]"]
    assert [query for path, query in service.asked_at("/messages") if query] == [{"limit": "1", "after": "1"}]


async def test_an_answer_is_complete_without_its_remarks() -> None:
    out = StringIO()
    refusing = httpx.MockTransport(lambda _: httpx.Response(503))

    async with httpx.AsyncClient(transport=refusing, base_url="http://x") as http:
        screen = Screen(out=out, err=out)
        state = ChatState(ServiceClient(http, place="the fake"), screen, "assistant", session=session_out())
        await remark_on_answer(state, message_out(2, content="See [#7]."))

    assert out.getvalue() == ""
