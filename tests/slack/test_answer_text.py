from uuid import UUID

from fakes.event_log import MESSAGE_ID
from throughline.domain.basic_types import RunId
from throughline.domain.events import Event, MessageDelta, ReasoningDelta, RunEvent, ToolCallDelta
from throughline.domain.run import RunError
from throughline.slack.answer_sender import GrowingAnswer, sentence


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
