"""The plan of a growing answer, played against a Slack that takes everything."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from throughline.slack.answer_message import PART_CHARS, ROLL_SECONDS, Written, next_piece, next_step, visible

TEXTS = st.lists(st.sampled_from(["word ", "a line\n", "\n\n", "```\n", "`code` ", "x" * 40]), max_size=40).map("".join)


@dataclass
class Played:
    """What was written: the pieces of the text in closed messages, and the state."""

    written: Written = field(default_factory=Written)
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
    played, now = Played(Written(part_chars=part_chars)), 0.0

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
    played = Played(Written(part_chars=part_chars))
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


def test_a_message_that_slack_calls_too_long_is_cut_anew() -> None:
    text = "word " * 2_000
    written = replace(Written().opened("1.0", 0.0), sent=len(text)).cut_smaller()

    piece = next_piece(written, text, is_final=True, now=0.0)

    assert piece.is_last
    assert 0 < piece.end <= PART_CHARS // 2
    assert next_step(written, text, piece, 0.0) == "edit"
