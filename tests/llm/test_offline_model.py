import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.context.measure import count_prompt, count_tool_specs
from throughline.context.quoted_memories import memories_note
from throughline.context.view.groups import delimit_summary
from throughline.context.view.placeholder_texts import delimited
from throughline.domain.basic_types import MemoryId, UserId
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, Prompt, PromptMessage, TextPiece, ToolSpec
from throughline.domain.recall import Memory
from throughline.llm.counters import TiktokenCounter
from throughline.llm.offline import OfflineModel

CALCULATOR = ToolSpec(
    "calculator", "Computes.", {"type": "object", "properties": {"expression": {}}, "required": ["expression"]}
)
SEARCH = ToolSpec("search_history", "Searches.", {"type": "object", "properties": {"query": {}}})
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
    assert "".join(event.text for event in events if isinstance(event, TextPiece)) == answer.text
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


async def test_it_quotes_a_memory_without_its_head() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    memory = Memory(MemoryId(UUID(int=1)), UserId(UUID(int=2)), "The dog is called Waldo.", {}, at, at)

    answer = await ask(memories_note([memory]), user("What is the dog called?"))

    assert "you said: The dog is called Waldo." in answer.text


async def test_it_reads_the_summary_too() -> None:
    summary = delimit_summary("- The launch code is 7421.", 40)
    system = f"Be kind.\n\n{summary}"

    answer = await ask(user("What was the launch code?"), system=system)

    assert "the summary: The launch code is 7421." in answer.text


async def test_it_admits_that_nothing_fits() -> None:
    answer = await ask(user("We ship on 14 May."), said("Noted."), user("Where is Atlantis?"))

    assert answer.text.startswith("I find no answer in what I see.")
    assert "14 May" not in answer.text


ALLERGY = "I am allergic to penicillin."


@pytest.mark.parametrize(
    ("told", "system"),
    [
        ((user(f"Yeah. {ALLERGY}"), said("What a pity?")), ""),
        ((user("What am I allergic to?"), said("I am Throughline's offline model. Allergic?")), f"- {ALLERGY} [#3]"),
        ((), f"Ok.\n\nKept facts, word for word:\n- Preferences: {ALLERGY} [#3]"),
        ((user("Hi"), PromptMessage(Role.TOOL, f"Found: {ALLERGY}", tool_call_id="c", name="lookup")), ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("question", ["what am I allergic to?", "Tell me my allergies", "Thanks. Which allergy is it?"])
async def test_it_answers_from_what_it_is_shown_and_searches_for_nothing(
    told: tuple[PromptMessage, ...], system: str, question: str
) -> None:
    answer = await ask(*told, user(question), system=delimit_summary(system, 40), tools=(SEARCH, CLOCK))

    assert answer.tool_calls == ()
    assert ALLERGY in answer.text.splitlines()[1]


async def test_the_last_statement_answers() -> None:
    told = [user("The budget is 4,000 euros."), user("Sorry, the budget is 5,000 euros.")]

    answer = await ask(*told, user("How much is the budget?"))

    assert "5,000" in answer.text
    assert "4,000" not in answer.text


@pytest.mark.parametrize("told", [(), (user("The report is fun to write."), said("Noted."))])
async def test_what_it_is_not_shown_it_searches_for(told: tuple[PromptMessage, ...]) -> None:
    answer = await ask(*told, user("Ok. When is the deadline of our report?"), tools=(SEARCH,))

    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [
        ("search_history", {"query": "deadline report"})
    ]


@pytest.mark.parametrize("statement", ["We ship on 14 May.", "Hello!", "How are you?", "Thanks, what can you do?"])
async def test_it_searches_for_nothing_where_nothing_is_asked(statement: str) -> None:
    answer = await ask(user("Hi"), said("Hello."), user(statement), tools=(SEARCH,))

    assert answer.tool_calls == ()


async def searched(result: str) -> AnswerComplete:
    """Return what it says to the result of the search that it asked for."""
    question = user("What am I allergic to?")
    call = (await ask(question, tools=(SEARCH,))).tool_calls[0]
    answered = PromptMessage(Role.TOOL, result, tool_call_id=call.id, name=call.name)
    return await ask(question, PromptMessage(Role.ASSISTANT, "", tool_calls=(call,)), answered, tools=(SEARCH,))


async def test_it_answers_from_what_was_found() -> None:
    lines = (
        "[#9, assistant, 2026-11-25 10:00] I am Throughline's offline model. You are allergic to nothing.",
        "[#7, user, 2026-11-25 09:59] What am I allergic to?",
        f"[#3, user, 2026-11-25 09:57] Yeah. {ALLERGY}",
    )

    answer = await searched("Quoted from it.\n" + delimited("quoted_history", "\n".join(lines)) + "\n3 messages.")

    assert answer.tool_calls == ()
    assert f"- the history: {ALLERGY}\n" in answer.text
    assert "nothing" not in answer.text


async def test_it_searches_once_and_says_that_nothing_was_found() -> None:
    answer = await searched("Nothing was found. Try other words, fewer of them, or another spelling.")

    assert answer.tool_calls == ()
    assert "nothing was found in the history" in answer.text


async def test_what_only_shares_a_word_is_told_as_what_comes_closest() -> None:
    answer = await ask(user("The report is fun."), said("Noted."), user("When is the deadline of our report?"))

    assert answer.text.startswith("I find no answer in what I see. What comes closest:\n- you said: The report is fun.")


async def test_a_search_that_the_user_calls_is_shown_as_it_is() -> None:
    answered = PromptMessage(Role.TOOL, "Nothing was found.", tool_call_id="c", name="search_history")

    answer = await ask(user('/call search_history {"query": "x"}'), answered, tools=(SEARCH,))

    assert answer.text == "search_history says: Nothing was found."


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


@pytest.mark.parametrize(
    ("question", "expression"),
    [
        ("12*7", "12*7"), ("(3+4)/2", "(3+4)/2"), ("What is 3 - 2?", "3 - 2"), ("what's 10/4", "10/4"),
        ("3 - 2", "3 - 2"), ("(12*7)", "(12*7)"), ("Was ist 9-4?", "9-4"), ("What is 1,200 * 1.5?", "1200 * 1.5"),
        ("2^10 please", "2^10"), ("17+4", "17+4"), ("2^10 =", "2^10"), ("Ok, 12*7", "12*7"), ("Tell me 3*4.", "3*4"),
        ("On 2026-11-25 we pay 3*40 euros, how much is that?", "3*40"), ("Add 3 + 4 for me.", "3 + 4"),
        ("We are on v1.2.3. What is the result of 12*7?", "12*7"), ("Right. 12*7", "12*7"),
        ("-3 + 5", "-3 + 5"), ("100 / (3 - 1)", "100 / (3 - 1)"),
    ],
)  # fmt: skip
async def test_it_calculates_what_is_a_sum(question: str, expression: str) -> None:
    answer = await ask(user(question), tools=(CALCULATOR, CLOCK))

    assert [json.loads(call.arguments) for call in answer.tool_calls] == [{"expression": expression}]


@pytest.mark.parametrize(
    "said",
    [
        "The wedding is on 2026-11-25.", "What is 12/05/2026?", "What is 2026-11-25?", "12-05-26", "2026-11",
        "We expect 10-12 people.", "10-12", "How many of the 10-12 people come?", "Call 030-123 456.", "+49 (0)30-1234",
        "What is 030-123 456?", "555-1234", "The shop is open 24/7.", "What is 24/7?", "Use version 1.2.3-4.",
        "Upgrade 1.2.3+4", "I want 10%-20% off.", "Bring 1/2 cup of oil.", "We meet 3 - 5 pm.", "Look at A4/A5.",
        "COVID-19 + 3", "10.0.0.1/24", "- 3 apples\n- 4 pears", "1\n* 2", "It is at 12:30-13:45.", "page 3/4",
        "What is the date of the party?", "What time is the meeting?", "On which day do we meet?",
    ],
)  # fmt: skip
async def test_it_takes_no_date_range_or_phone_number_for_a_sum_or_a_question_for_the_time(said: str) -> None:
    assert (await ask(user(said), tools=(CALCULATOR, CLOCK))).tool_calls == ()


NOTES = (
    "2026-03-14", "The release is on 2026-03-14.", "2026-03-14 + 7", "2026-03-14T10:00+02:00", "14/3/2026",
    "Meeting 2026-03-14 10:00-11:00 in room 4", "The trip is 2026-03-14 - 2026-03-20.", "v1.2.3",
    "Upgrade 1.2.3 -> 1.2.4",
    "3-5 people", "10/12 done", "10.0.0.1", "The subnet is 10.0.0.0/8.", "192.168.0.1:8080", "+1 (555) 010-9999",
    "Our number is +49 30 1234567.", "We open 24/7.", "Ratio 3:4", "5 - 10 % more", "The score is 3 - 2.",
    "Room 4 + 5 are booked.", "1+1 seats", "Size: 10 × 20 cm", "The bed measures 200 × 160.", "2^10 rows on 2026-03-14",
    "On 2026-11-25 we pay 3*40 euros.", "Python 3.11 + 3.12 are supported.", "Call 0800 123 + 45.", "12*7 = 84",
    "The proof (see 12*7) is short.",
)  # fmt: skip


@pytest.mark.parametrize("note", NOTES)
async def test_it_acknowledges_a_note_with_numbers_and_does_not_calculate(note: str) -> None:
    offered = (CALCULATOR, CLOCK, SEARCH)

    first = await ask(user(note), tools=offered)
    later = await ask(user("Hi"), said("Hello."), user(note), tools=offered)

    assert (first.tool_calls, later.tool_calls) == ((), ())
    assert first.text.startswith("Noted. I am Throughline's offline model: ")
    assert later.text.startswith("Noted. I am Throughline's offline model. I see 2 earlier messages.")


@pytest.mark.parametrize("question", ["what time is it in Tokyo?", "What's the time", "Which day is it today?"])
async def test_it_looks_at_the_clock_when_asked_what_time_it_is(question: str) -> None:
    assert [call.name for call in (await ask(user(question), tools=(CLOCK,))).tool_calls] == ["current_time"]


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


@pytest.mark.parametrize("ended", ["[#17, replaced by #51]", "[#17, replaced by [#51]]", "[#17], replaced by [#51]"])
async def test_it_quotes_no_fact_that_was_replaced(ended: str) -> None:
    facts = f"- The budget is 5,100 EUR now. [#51]\n- Our budget is 4,300 EUR. {ended}"

    answer = await ask(user("What is our budget?"), system=delimit_summary(facts, 60))

    assert "5,100" in answer.text
    assert "4,300" not in answer.text
