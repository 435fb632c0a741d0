"""Citations at the command line: marked where they are not valid, and with the command that reads the messages."""

from io import StringIO
from uuid import UUID

import httpx
from hypothesis import given
from hypothesis import strategies as st

from fakes.command_stage import CommandStage
from fakes.scripted_turns import said
from fakes.wire_shapes import SESSION_ID, cited_message_out, message_out, session_out, version_out
from throughline.cli.chat_citations import remark_on_answer
from throughline.cli.chat_context import draw_version
from throughline.cli.chat_state import ChatState
from throughline.cli.client import ServiceClient
from throughline.cli.history_views import draw_cited, draw_message, marked, problems, reading_hint
from throughline.cli.printable import printable
from throughline.cli.screen import Screen
from throughline.wire.messages import CitationOut

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
