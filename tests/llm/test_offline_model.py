import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.context.assemble import frame_summary
from throughline.context.measure import count_prompt, count_tool_specs
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, Prompt, PromptMessage, TextDelta, ToolSpec
from throughline.llm.counters import TiktokenCounter
from throughline.llm.offline import OfflineModel

CALCULATOR = ToolSpec(
    "calculator", "Computes.", {"type": "object", "properties": {"expression": {}}, "required": ["expression"]}
)
CLOCK = ToolSpec("current_time", "The time.", {"type": "object", "properties": {"timezone": {}}})


def user(text: str) -> PromptMessage:
    return PromptMessage(Role.USER, text)


def said(text: str) -> PromptMessage:
    return PromptMessage(Role.ASSISTANT, text)


async def ask(
    *messages: PromptMessage, system: str = "", tools: tuple[ToolSpec, ...] = (), limit: int = 1000
) -> AnswerComplete:
    request = ModelRequest(Prompt(system, messages), tools, limit)
    events = [event async for event in OfflineModel().stream(request)]
    answer = events[-1]
    assert isinstance(answer, AnswerComplete)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == answer.text
    return answer


async def test_it_greets_and_says_what_it_is() -> None:
    answer = await ask(user("Hello!"))

    assert answer.text.startswith("Hello! I am Throughline's offline model")
    assert answer.finish_reason == "stop"


async def test_it_quotes_the_sentence_that_fits_the_question() -> None:
    told = (user("My dog is called Waldo. I live in Graz."), said("And what else?"))

    answer = await ask(*told, user("What is my dog called?"))

    assert "you said: My dog is called Waldo." in answer.text
    assert "I see 2 earlier messages." in answer.text


async def test_it_reads_the_summary_too() -> None:
    summary = frame_summary("- The launch code is 7421.", 40)
    system = f"Be kind.\n\n{summary}"

    answer = await ask(user("What was the launch code?"), system=system)

    assert "the summary: The launch code is 7421." in answer.text


async def test_it_admits_that_nothing_fits() -> None:
    answer = await ask(user("We ship on 14 May."), said("Noted."), user("Where is Atlantis?"))

    assert "Nothing in them shares a word" in answer.text


@pytest.mark.parametrize(
    ("question", "name", "arguments"),
    [
        ("what is 17*23?", "calculator", {"expression": "17*23"}),
        ("compute (2 + 3) × 4 please", "calculator", {"expression": "(2 + 3) * 4"}),
        ("What time is it?", "current_time", {}),
        ("what's the date today", "current_time", {}),
        ('/call calculator {"expression": "1+1"}', "calculator", {"expression": "1+1"}),
    ],
)
async def test_it_calls_the_tool_a_question_asks_for(question: str, name: str, arguments: dict[str, str]) -> None:
    answer = await ask(user(question), tools=(CALCULATOR, CLOCK))

    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [(name, arguments)]
    assert answer.finish_reason == "tool_calls"


async def test_it_answers_from_the_tools_result() -> None:
    call = ToolCall("c1", "calculator", '{"expression": "17*23"}')

    answer = await ask(
        user("what is 17*23?"),
        PromptMessage(Role.ASSISTANT, "", tool_calls=(call,)),
        PromptMessage(Role.TOOL, "391", tool_call_id="c1", name="calculator"),
        tools=(CALCULATOR,),
    )

    assert answer.text == "calculator says: 391"
    assert answer.tool_calls == ()


async def test_it_calls_no_tool_that_is_not_offered() -> None:
    answer = await ask(user("/call shell {}"), tools=(CLOCK,))

    assert answer.text == "No tool named shell is offered to me. Offered: current_time."


async def test_it_ends_at_its_token_limit() -> None:
    answer = await ask(user("Hello!"), limit=10)

    assert answer.finish_reason == "length"
    assert 0 < TiktokenCounter().count(answer.text) <= 10


async def test_it_reports_what_it_counted() -> None:
    answer = await ask(user("Hello!"), system="Be kind.")

    assert (answer.usage.input_tokens or 0) > 0
    assert (answer.usage.output_tokens or 0) > 0


@given(text=st.text(max_size=200), limit=st.integers(1, 200))
async def test_whatever_it_is_asked_it_gives_the_same_whole_answer_twice(text: str, limit: int) -> None:
    first, second = await ask(user(text), limit=limit), await ask(user(text), limit=limit)

    assert first == second
    assert first.text or first.tool_calls


async def test_its_usage_is_the_engines_own_measure() -> None:
    prompt = Prompt("Be kind.", (user("Hello!"),))
    count = TiktokenCounter().count

    answer = await ask(*prompt.messages, system=prompt.system, tools=(CLOCK,))

    assert answer.usage.input_tokens == count_prompt(prompt, count_tool_specs((CLOCK,), count), count)
