"""Messages of no session are summarised window after window, and every answer is judged before it is used."""

import re
from dataclasses import replace

import pytest

from fakes.compactions import asked, positions_read
from fakes.scripted_model import Call, Fail, Say, ScriptedModel
from throughline.client.summarize import numbered
from throughline.context.policy import SummaryPolicy
from throughline.domain.errors import InvalidInput, ModelRejected, ModelUnavailable
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.llm.counters import make_counter
from throughline.turn.summary.summariser import NotWorthIt, Summariser, SummaryRejected
from throughline.turn.summary.summarize_now import summarize_transcript

COUNT = make_counter("tiktoken").count
LIMIT = 100
ERROR_TEXT = '{"error": {"message": "The server is overloaded", "type": "server_error"}}'


def said(number: int, words: int = 40) -> list[Message]:
    roles = (Role.USER, Role.ASSISTANT)
    return [message(place, roles[place % 2], f"word {place} " * words) for place in range(1, number + 1)]


def message(position: int, role: Role, text: str) -> Message:
    return numbered(position, NewMessage(role=role, content=text, source=Source.API))


def summariser_on(model: ScriptedModel) -> Summariser:
    return Summariser(
        model=model,
        policy=SummaryPolicy(max_tokens=LIMIT),
        count=COUNT,
        max_tokens=LIMIT,
        window_tokens=model.context_limit,
        factor=1.0,
    )


async def test_what_does_not_fit_the_window_is_read_in_pieces_each_with_the_text_so_far() -> None:
    steps = [Say(f"## State\nText number {number} [#1].") for number in range(30)]
    model = ScriptedModel(*steps, context_limit=2048)

    text = await summarize_transcript(said(40), "What was before.", summariser_on(model))

    requests, number = model.requests, len(model.requests)
    sizes = [COUNT(request.prompt.system) + COUNT(asked(request)) + LIMIT for request in requests]
    assert number > 3
    assert text == f"## State\nText number {number - 1} [#1]."
    assert positions_read(requests) == list(range(1, 41))
    assert max(sizes) <= 2048
    assert "What was before." in asked(requests[0])
    assert all(f"Text number {index} " in asked(later) for index, later in enumerate(requests[1:]))


async def test_a_call_and_its_result_are_read_together() -> None:
    call = replace(message(2, Role.ASSISTANT, ""), tool_calls=(ToolCall("c", "look_up", '{"q": 1}'),))
    result = replace(message(3, Role.TOOL, "found it"), tool_call_id="c", name="look_up")
    model = ScriptedModel(Say("It was found [#3]."))

    await summarize_transcript([*said(1), call, result], "", summariser_on(model))

    assert re.search(r"\[#2 calls\] look_up.*\n\[#3 tool look_up\] found it", asked(model.requests[0]))


@pytest.mark.parametrize("useless", [Say(ERROR_TEXT), Say(""), Call((ToolCall("c", "look_up", "{}"),), "text")])
async def test_a_text_of_no_use_is_asked_for_once_more(useless: Say | Call) -> None:
    model = ScriptedModel(useless, Say("They counted [#1-#4]."))

    assert await summarize_transcript(said(4), "", summariser_on(model)) == "They counted [#1-#4]."


async def test_a_text_of_no_use_is_never_returned() -> None:
    model = ScriptedModel(Say(ERROR_TEXT), Say(ERROR_TEXT))

    with pytest.raises(SummaryRejected):
        await summarize_transcript(said(4), "", summariser_on(model))


async def test_a_model_that_cannot_be_reached_is_asked_once_more_after_the_pause_it_wishes() -> None:
    away = ModelUnavailable("The model is away.", delay_seconds=0)
    model = ScriptedModel(Fail(away), Say("They counted [#1-#4]."), Fail(away), Fail(away))

    assert await summarize_transcript(said(4), "", summariser_on(model)) == "They counted [#1-#4]."
    with pytest.raises(ModelUnavailable, match="The model is away"):
        await summarize_transcript(said(4), "", summariser_on(model))


async def test_what_the_model_rejects_is_not_asked_again() -> None:
    model = ScriptedModel(Fail(ModelRejected("No such model.")))

    with pytest.raises(ModelRejected, match="No such model"):
        await summarize_transcript(said(4), "", summariser_on(model))


async def test_a_text_as_long_as_what_it_stands_for_is_an_error() -> None:
    model = ScriptedModel(Say("They counted further and further [#1]. " * 60))

    with pytest.raises(NotWorthIt, match="would replace only"):
        await summarize_transcript(said(2, words=30), "", summariser_on(model))


async def test_a_short_last_piece_does_not_make_a_long_text_worthless() -> None:
    long = "What was counted before stands here, at length. " * 22
    model = ScriptedModel(*(Say(long) for _ in range(3)), context_limit=2048)

    await summarize_transcript([*said(2, words=2000), *said(3, words=1)[-1:]], "", summariser_on(model))

    assert positions_read(model.requests[-1:]) == [3]


async def test_an_existing_summary_that_leaves_no_room_is_refused_before_anything_is_paid() -> None:
    model = ScriptedModel(context_limit=2048)

    with pytest.raises(InvalidInput, match=r"existing summary .* scripted .* larger window"):
        await summarize_transcript(said(4), "word " * 1500, summariser_on(model))


async def test_without_messages_the_summary_is_what_it_was() -> None:
    assert await summarize_transcript([], "as it was", summariser_on(ScriptedModel())) == "as it was"
