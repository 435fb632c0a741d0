"""The plan of a growing answer, played against a Slack that takes everything."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import tables_with
from fakes.slack_delivery import DeliveryStage, PlayedTurn, SlackStage
from fakes.slack_double import Failure, say
from fakes.slack_double.payloads import deleted, edited, message
from throughline.db.sessions.redaction import Redaction
from throughline.domain.basic_types import RunId
from throughline.domain.errors import LeaseLost
from throughline.domain.events import Event, MessageDelta, ReasoningDelta, RunEvent, ToolCallDelta
from throughline.domain.run import RunError, RunStatus
from throughline.slack.answers.answer_message import (
    PART_CHARS,
    ROLL_SECONDS,
    AnswerState,
    next_piece,
    next_step,
    visible,
)
from throughline.slack.answers.answer_sender import GrowingAnswer, sentence
from throughline.slack.web_api import SlackRefused

TEXTS = st.lists(st.sampled_from(["word ", "a line\n", "\n\n", "```\n", "`code` ", "x" * 40]), max_size=40).map("".join)


@dataclass
class Played:
    """What was written: the pieces of the text in closed messages, and the state."""

    written: AnswerState = field(default_factory=AnswerState)
    closed: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def show(self, text: str, *, is_final: bool, now: float, streams: bool) -> None:
        end = -1
        while end < len(text):
            piece = next_piece(self.written, text, is_final=is_final, now=now)
            step, end = next_step(self.written, text, piece, now), piece.end
            self.steps.append(step)
            if step == "open":
                self.written = self.written.opened("1.0", now, streams=streams and not piece.is_last)
            if step in {"open", "append", "stop"}:
                self.written = self.written.grown(text, end)
            if step == "edit" or (step == "open" and not self.written.streams):
                self.written = self.written.rewritten(text, end, now)
            if piece.is_last:
                self.closed.append(text[self.written.starts : end])
                self.written = self.written.closed(end)


@given(
    text=TEXTS, pauses=st.lists(st.floats(0, ROLL_SECONDS), max_size=8), part_chars=st.integers(20, 200), streams=...
)
def test_an_answer_is_written_whole_in_parts_that_fit(
    *, text: str, pauses: list[float], part_chars: int, streams: bool
) -> None:
    text = visible(text)
    played, now = Played(AnswerState(part_chars=part_chars)), 0.0

    for number, pause in enumerate(pauses, 1):
        now += pause
        shown = text[: len(text) * number // (len(pauses) + 1)]
        if shown.strip():
            played.show(shown, is_final=False, now=now, streams=streams)
    if text.strip():
        played.show(text, is_final=True, now=now + 1, streams=streams)

    assert "".join(played.closed) == (text if text.strip() else "")
    assert all(len(part) <= part_chars for part in played.closed)
    assert not text.strip() or not played.written.lacks(text, now + 1)


@given(TEXTS.filter(str.strip), st.integers(20, 200))
def test_what_is_shown_is_not_sent_again(text: str, part_chars: int) -> None:
    text = visible(text)
    played = Played(AnswerState(part_chars=part_chars))
    played.show(text, is_final=False, now=0.0, streams=True)
    sent = len(played.steps)

    played.show(text, is_final=False, now=ROLL_SECONDS, streams=True)

    assert set(played.steps[sent:]) == {"nothing"}


def test_an_old_stream_ends_behind_a_line_and_another_message_follows() -> None:
    played = Played()
    played.show("one\ntw", is_final=False, now=0.0, streams=True)
    played.show("one\ntwo\nthr", is_final=False, now=ROLL_SECONDS + 1, streams=True)

    assert played.closed == ["one\ntwo\n"]
    assert played.steps == ["open", "stop", "open"]


def test_an_edited_message_waits_for_its_turn_unless_it_is_the_last_time() -> None:
    played = Played()
    played.show("one", is_final=False, now=0.0, streams=False)
    played.show("one two", is_final=False, now=1.0, streams=False)
    played.show("one two three", is_final=True, now=1.5, streams=False)

    assert played.steps == ["open", "nothing", "edit"]


def test_a_message_that_slack_calls_too_long_is_cut_again() -> None:
    text = "word " * 2_000
    written = replace(AnswerState().opened("1.0", 0.0), sent=len(text)).cut_smaller()

    piece = next_piece(written, text, is_final=True, now=0.0)

    assert piece.is_last
    assert 0 < piece.end <= PART_CHARS // 2
    assert next_step(written, text, piece, 0.0) == "edit"


def test_a_failed_turn_is_told_in_our_words_and_not_in_the_providers() -> None:
    said = sentence(RunError("model_invalid_request", "The server has no such model.", "try pulling it first"))

    assert "The server has no such model." in said
    assert "pulling" not in said


def test_reasoning_and_arguments_of_calls_are_no_part_of_the_text() -> None:
    answer = GrowingAnswer()

    told: tuple[Event, ...] = (
        ReasoningDelta(MESSAGE_ID, "They greet me."),
        MessageDelta(MESSAGE_ID, "Hello."),
        ReasoningDelta(MESSAGE_ID, "Done."),
        ToolCallDelta(MESSAGE_ID, 0, "c1", "calculator", "{}"),
    )
    for number, event in enumerate(told):
        answer.feed(RunEvent(RunId(UUID(int=1)), number, event))

    assert (answer.text, answer.status) == ("Hello.", "is thinking…")


SECRET = "tangelo42"  # the word that has to go


async def test_a_waiting_message_deleted_in_slack_leaves_its_text_nowhere(stage: SlackStage) -> None:
    said = say(f"the code is {SECRET}")
    await stage.sender.once(message(said))
    await stage.sender.once(deleted(said))

    assert await tables_with(stage.url, SECRET) == []


async def test_the_text_before_an_edit_of_a_waiting_message_stands_nowhere(stage: SlackStage) -> None:
    said = say(f"the code is {SECRET}")
    await stage.sender.once(message(said))
    await stage.sender.once(edited(said, "what is 20+20"))

    assert await tables_with(stage.url, SECRET) == []


LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_begins_with_line_breaks_arrives(outgoing: DeliveryStage, *, streams: bool) -> None:
    if not streams:
        outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say("\n\n")
    await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
    outgoing.clock.advance(2)
    await turn.say("\n \n")
    await turn.say("\n" + LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish("\n\n\n \n\n" + LINE + "End.")
    await sender

    assert outgoing.texts() == [LINE + "End."]
    refused = [call for call in outgoing.double.workspace.calls if call.outcome == "no_text"]
    assert refused == []


async def test_white_space_that_would_be_a_message_of_its_own_is_left_out(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("x" * 9_999 + "\n" * 5_000)

    await outgoing.deliver()

    assert [text.strip() for text in outgoing.texts()] == ["x" * 9_999]


async def test_white_space_longer_than_a_message_does_not_end_the_answer(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Before." + "\n" * 30_000 + "Behind.")

    await outgoing.deliver()

    assert [text.strip() for text in outgoing.texts()] == ["Before.", "Behind."]


async def test_pieces_of_white_space_within_a_stream_go_with_the_words_behind_them(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    outgoing.clock.advance(2)
    await turn.say("\n\n\n")
    await turn.say(LINE)
    await outgoing.in_time(lambda: outgoing.texts() == [LINE + "\n\n\n" + LINE])
    await turn.finish(LINE + "\n\n\n" + LINE + "\n")
    await sender

    assert {call.outcome for call in outgoing.double.workspace.calls} == {"ok"}


async def test_a_message_of_an_earlier_attempt_that_has_only_white_space_left_is_withdrawn(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE * 30)
    await outgoing.in_time(lambda: len(outgoing.posted) > 1)
    await outgoing.crash()
    [(starts,)] = await outgoing.rows("select starts from slack_parts where number = 2")
    await turn.finish("x" * int(str(starts)) + "\n\n", status=RunStatus.SUCCEEDED)

    await outgoing.deliver()

    assert [text.strip() for text in outgoing.texts()] == ["x" * int(str(starts)), "_(withdrawn)_"]


LONG = "SECRET " + LINE * 30


async def crash_in_the_second_message(outgoing: DeliveryStage) -> PlayedTurn:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LONG)
    await outgoing.in_time(lambda: len(outgoing.posted) > 1)
    await outgoing.crash()
    return turn


async def test_an_answer_whose_session_is_erased_in_mid_stream_is_no_longer_open_in_slack(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    run = turn.claimed.run

    await outgoing.database.sessions.delete(run.owner_id, run.session_id)
    with suppress(LeaseLost):
        await sender

    assert not outgoing.posted[0].is_streaming


async def test_a_redacted_answer_is_taken_out_of_slack_by_the_sender_after_a_dead_one(
    outgoing: DeliveryStage,
) -> None:
    turn = await crash_in_the_second_message(outgoing)
    run = await turn.finish(LONG)
    assert run.message_id is not None
    await outgoing.database.messages.redact(Redaction(run.owner_id, run.session_id, run.message_id))

    await outgoing.deliver()

    assert not any("SECRET" in shown for shown in outgoing.texts())


async def test_a_further_attempt_that_says_less_than_stood_in_the_first_message_is_shown(
    outgoing: DeliveryStage,
) -> None:
    turn = await crash_in_the_second_message(outgoing)
    await turn.finish("Short after all.")

    await outgoing.deliver()

    assert outgoing.texts()[0] == "Short after all."


async def test_an_answer_too_long_to_post_is_posted_in_smaller_pieces(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.most_chars = 3_000
    answer = "".join(f"{number} {LINE}" for number in range(20))
    turn = await outgoing.ask()
    await turn.finish(answer)

    await outgoing.deliver()

    assert "".join(outgoing.texts()) == answer
    assert all(len(text) <= 2_500 for text in outgoing.texts())


async def test_a_message_that_grew_too_long_is_cut_and_continued(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.most_chars = 3_000
    answer = "".join(f"{number} {LINE}" for number in range(20))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    for start in range(0, len(answer), 500):
        await turn.say(answer[start : start + 500])
    await turn.finish(answer)
    await sender

    assert "".join(outgoing.texts()) == answer


async def test_where_no_piece_is_short_enough_the_delivery_is_refused(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.most_chars = 10
    turn = await outgoing.ask()
    await turn.finish(LINE)

    with pytest.raises(SlackRefused, match="msg_too_long"):
        await outgoing.deliver()


UNEDITABLE = ["edit_window_closed", "cant_update_message", "message_not_owned_by_app"]


@pytest.mark.parametrize("error", UNEDITABLE)
async def test_the_rest_of_an_answer_follows_a_posted_message_that_can_no_longer_be_edited(
    outgoing: DeliveryStage, error: str
) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    outgoing.double.rules.fail("chat.update", Failure(error=error))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish(LINE + "The end.")
    await sender

    assert outgoing.texts() == [LINE, "The end."]
    assert await outgoing.rows("select number, status from slack_parts order by number") == [
        (1, "closed"),
        (2, "closed"),
    ]


async def test_the_rest_follows_a_stream_that_slack_ended_and_lets_nobody_edit(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.stream_seconds = 60
    outgoing.double.rules.fail("chat.update", Failure(error="edit_window_closed"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    outgoing.clock.advance(61)
    await turn.finish(LINE + "The end.")
    await sender

    assert outgoing.texts() == [LINE, "The end."]


async def test_the_whole_is_said_again_behind_a_dead_senders_message_that_cannot_be_edited(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until_noted()
    await outgoing.crash()
    await turn.finish(LINE + "The end.")
    outgoing.double.rules.fail("chat.update", Failure(error="edit_window_closed"))

    await outgoing.deliver()

    assert outgoing.texts() == [LINE, LINE + "The end."]


async def test_parts_that_begin_at_the_same_place_are_not_emptied_by_who_follows(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until_noted()
    await outgoing.crash()
    outgoing.double.rules.fail("chat.update", Failure(error="edit_window_closed"))
    delivery = await outgoing.claim()
    await turn.finish(LINE + "The end.")
    await (await outgoing.start(delivery))
    await outgoing.free_again(delivery)

    await outgoing.deliver()

    assert outgoing.texts() == [LINE, LINE + "The end."]
