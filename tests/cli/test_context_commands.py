from collections.abc import Callable

import pytest
from click.testing import Result

from app.wire.context import PreviewedMessage, StretchToSummarise
from fakes.fake_parts import FakeWorld
from fakes.wire_shapes import message_id, preview_out, version_out

Throughline = Callable[..., Result]
SUMMARIES = (version_out(3, version=None, state="prepared"), version_out(2), version_out(1, state="superseded"))


@pytest.fixture
def session_id(world: FakeWorld) -> str:
    world.service.summaries = list(SUMMARIES)
    return world.service.add_session(7, messages=40, summarized=20)


def test_a_preview_is_asked_for_with_the_text_or_without(
    world: FakeWorld, throughline: Throughline, session_id: str
) -> None:
    world.service.preview = preview_out(
        PreviewedMessage(position=35, role="user", form="whole", reason="", tokens=9, pinned=False),
        action="compact",
        cause="threshold",
        summarise=StretchToSummarise(from_position=21, through_position=34, message_count=14),
    )

    result = throughline("chat", "--session", session_id, typed="/preview\n/preview What next?\n")

    assert world.service.previewed == [None, "What next?"]
    assert "14 messages (#21-#34) are summarized" in result.stdout
    assert "#35         whole" in result.stdout


def test_summaries_are_listed_and_one_is_gone_back_to(
    world: FakeWorld, throughline: Throughline, session_id: str
) -> None:
    result = throughline("chat", "--session", session_id, typed="/summaries\n/restore 1\n")

    assert "v2   adopted    #1-#20" in result.stdout
    assert "–    prepared   #1-#30" in result.stdout
    assert world.service.restored == [SUMMARIES[2].id]
    assert "Back at version 1: 10 of 40 messages are summarized. It is kept as a new version." in result.stdout


def test_one_version_is_read_and_two_are_compared(world: FakeWorld, throughline: Throughline, session_id: str) -> None:
    world.service.summaries = [version_out(2, text="- Ada moved.\n- Bob came."), version_out(1, text="- Ada moved.")]

    result = throughline("chat", "--session", session_id, typed="/summaries 1\n/summaries v1 2\n/summaries 7\n")
    outside = throughline("sessions", "summaries", session_id, "1", "2")

    assert "- Ada moved." in result.stdout
    assert "+ - Bob came." in result.stdout
    assert "There is no version 7 of the summary." in result.stdout + result.stderr
    assert "+ - Bob came." in outside.stdout


def test_a_prepared_summary_is_read_and_compared_by_that_name(
    world: FakeWorld, throughline: Throughline, session_id: str
) -> None:
    typed = "/summaries prepared\n/summaries 2 prepared\n"
    result = throughline("chat", "--session", session_id, typed=typed)
    world.service.summaries = [version_out(2)]
    without = throughline("sessions", "summaries", session_id, "prepared")

    assert "–    prepared   #1-#30" in result.stdout
    assert "version 2 (#1-#20) → the prepared one (#1-#30)" in result.stdout
    assert "No summary is prepared now" in without.stderr


@pytest.mark.usefixtures("world")
def test_going_back_to_the_version_in_use_says_that_nothing_has_changed(
    throughline: Throughline, session_id: str
) -> None:
    result = throughline("chat", "--session", session_id, typed="/restore 2\n")

    assert "Version 2 is in use already; nothing has changed." in result.stdout


def test_a_version_on_a_later_page_is_found(world: FakeWorld, throughline: Throughline, session_id: str) -> None:
    filler = [version_out(number, state="superseded") for number in range(400, 3, -1)]
    world.service.summaries = [*filler, *SUMMARIES]

    listed = throughline("sessions", "summaries", session_id)
    throughline("sessions", "restore", session_id, "1")

    assert len(listed.stdout.splitlines()) == len(filler) + len(SUMMARIES)
    assert world.service.restored == [SUMMARIES[2].id]


def test_the_same_can_be_done_outside_a_chat(world: FakeWorld, throughline: Throughline, session_id: str) -> None:
    context = throughline("sessions", "context", session_id, "--preview")
    summaries = throughline("sessions", "summaries", session_id)
    restored = throughline("sessions", "restore", session_id, SUMMARIES[2].id)

    assert "Context of assistant" in context.stdout
    assert "The next call:" in context.stdout
    assert summaries.stdout.startswith("–    prepared")
    assert restored.stdout.startswith("Back at version 1:")
    assert world.service.restored == [SUMMARIES[2].id]


def test_what_the_service_refuses_to_restore_is_told_in_its_words(throughline: Throughline, session_id: str) -> None:
    result = throughline("sessions", "restore", session_id, SUMMARIES[0].id)

    assert (result.exit_code, result.stderr) == (1, "Error: A prepared summary was never in use.\n")


def test_a_pin_is_set_by_position_shown_in_the_history_and_taken_off(
    world: FakeWorld, throughline: Throughline, session_id: str
) -> None:
    result = throughline(
        "chat", "--session", session_id, typed="/pin 39\n/history 2\n/unpin #39\n/history 1\n/pin 40\n"
    )

    assert result.stdout.splitlines()[1:] == [
        "Pinned #39: every prompt shows it word for word.",
        "#39 📌 user text 39",
        "#40 assistant text 40",
        "#39 is not pinned any more.",
        "#40 assistant text 40",
        "Pinned #40: every prompt shows it word for word.",
    ]
    assert [message.id for message in world.service.messages[session_id] if message.pinned] == [message_id(40)]


def test_a_tools_answer_is_pinned_with_its_call(world: FakeWorld, throughline: Throughline, session_id: str) -> None:
    world.service.change_message(session_id, 6, role="tool")

    result = throughline("chat", "--session", session_id, typed="/pin 6\n")

    assert "Pinned #5-#6, a tool call and its results: every prompt shows it" in result.stdout


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("/pin", "Write /pin with a message's number in /history."),
        ("/pin last", "not 'last'"),
        ("/pin 0", "not '0'"),
        ("/pin 99999999999999", "not '99999999999999'"),
        ("/unpin 41", "There is no message #41."),
        ("/restore", "Write the number or the id of a version"),
        ("/restore 9", "There is no version 9"),
    ],
)
def test_a_wrong_number_is_one_line_that_says_what_to_do(
    throughline: Throughline, session_id: str, typed: str, hint: str
) -> None:
    result = throughline("chat", "--session", session_id, typed=f"{typed}\n")

    assert result.exit_code == 1
    assert hint in result.stderr


@pytest.mark.parametrize("typed", ["/preview", "/summaries", "/restore 1", "/pin 1", "/unpin 1", "/context"])
def test_before_the_first_message_there_is_nothing_to_look_at(throughline: Throughline, typed: str) -> None:
    assert "the session begins with the first one" in throughline("chat", typed=f"{typed}\n").stderr
