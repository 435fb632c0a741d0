"""What is quoted of a history that the prompt does not show whole, whatever hides it, and of several questions."""

import json
from dataclasses import replace

import pytest

from context.strategies import Said, by_length, conversation_input
from fakes.compactions import store
from fakes.scripted_model import Call, Fail, Say, Step
from fakes.stage import Stage, open_stage, with_context
from throughline.context.plan_context import plan_context
from throughline.context.policy import Recall, Strategy
from throughline.context.questions import questions_of
from throughline.context.quoted_history import last_hidden_position
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import DatabaseBusy, ModelUnavailable
from throughline.domain.events import HistoryQuoted
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import ModelRequest
from throughline.domain.recall import HistoryQuery, SearchResult
from throughline.domain.run import RunStatus

FACT = "The gate code of the boat yard is 4417."
QUESTION = "What was the gate code of the boat yard?"
LONG = "word " * 60
ROUNDS = 12


async def open_long(database: Database, *planted: str, **context: object) -> Stage:
    """Open a session that begins with the planted texts and does not fit its window of 4,096 tokens."""
    changes = {"recall": Recall.AUTO, "window": 4096, "response_reserve": 256, "auto_summarize": False, **context}
    agent = replace(with_context(**changes), max_tool_rounds=ROUNDS)
    stage = await open_stage(database, agent=agent)
    said = [*planted, *(f"We talked a while about the weather in town number {at}. {LONG}" for at in range(40))]
    await store(stage, *((Role.ASSISTANT if at % 2 else Role.USER, text) for at, text in enumerate(said)))
    return stage


async def note(stage: Stage, text: str) -> str:
    """Play a turn with this message and return what its prompt quotes, '' if nothing."""
    stage.model.script(Say("Here."))
    run = await stage.turn(text)
    assert run.status is RunStatus.SUCCEEDED
    shown = [text_of(message.content) for message in stage.model.requests[-1].prompt.messages]
    events = [event.event for event in await stage.events(run) if isinstance(event.event, HistoryQuoted)]
    assert bool(events) == ("<quoted_history>" in shown[-2])
    return shown[-2] if events else ""


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize(
    "context",
    [
        {"strategy": Strategy.TRUNCATION, "keep_recent": 6},
        {"strategy": Strategy.IMPORTANCE},
        {},
    ],
    ids=["truncation", "importance", "auto_summarize: false"],
)
async def test_what_was_left_out_without_a_summary_is_quoted(
    database: Database, context: dict[str, object], *, is_indexed: bool
) -> None:
    stage = await open_long(database, FACT, "Noted.", **context)
    if is_indexed:
        await database.history.index_session(stage.session.id)

    assert f"[#1, user, {stage.session.created_at:%Y-%m-%d}" in (quoted := await note(stage, QUESTION))
    assert FACT in quoted


async def test_what_a_failed_summary_leaves_out_is_quoted(database: Database) -> None:
    stage = await open_long(database, FACT, "Noted.", auto_summarize=True)

    def answer(request: ModelRequest) -> Step:
        is_turn = text_of(request.prompt.messages[-1].content) == QUESTION
        return Say("Here.") if is_turn else Fail(ModelUnavailable("down"))

    stage.model.by_request = answer

    assert FACT in await note(stage, QUESTION)
    assert any(text_of(request.prompt.messages[-1].content) != QUESTION for request in stage.model.requests)


async def test_a_short_conversation_is_not_searched(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(recall=Recall.AUTO))
    await store(stage, (Role.USER, FACT), (Role.ASSISTANT, "Noted."))

    assert await note(stage, QUESTION) == ""


async def test_each_of_two_questions_gets_its_source(database: Database) -> None:
    hobbies = [f"Boat number {at} lies in the yard near the gate, boat yard gate {at}." for at in range(20)]
    stage = await open_long(database, FACT, "Noted.", "My cousin Vera repairs violins in Basel.", "Nice.", *hobbies)

    quoted = await note(stage, f"{QUESTION} And who repairs violins?")

    assert FACT in quoted
    assert "Vera" in quoted


async def test_a_question_that_cannot_be_looked_up_takes_nothing_from_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await open_long(database, FACT, "Noted.")
    search = database.history.search

    async def search_some(owner_id: UserId, session_id: SessionId, query: HistoryQuery) -> SearchResult:
        if "violins" in query.text:
            raise DatabaseBusy("busy")
        return await search(owner_id, session_id, query)

    monkeypatch.setattr(database.history, "search", search_some)

    assert FACT in await note(stage, f"{QUESTION} And who repairs violins?")


async def test_a_question_about_a_change_gets_the_old_and_the_new_statement_in_order(database: Database) -> None:
    before, after = "The budget for the boat is 4,000 euros.", "I changed the budget for the boat to 5,500 euros."
    filler = [f"We talked about cooking dish number {at}." for at in range(10)]
    stage = await open_long(database, before, "Noted.", *filler, after, "Noted.")

    quoted = await note(stage, "How did the budget for the boat change, and is it still what I said first?")

    assert -1 < quoted.find(before) < quoted.find(after)


async def test_what_i_said_is_quoted_from_my_own_words(database: Database) -> None:
    answer = "About the tax return: the tax return needs receipts, and the tax return is due. " * 20
    said = "My tax return is with Anna in Graz."
    stage = await open_long(database, "How do I file a tax return?", answer, said, "Noted.")

    quoted = await note(stage, "What did I say about my tax return?")

    assert said in quoted


async def test_standing_instructions_that_fit_come_with_what_fits_better(database: Database) -> None:
    instruction = "Always show prices of a boat in Swiss francs."
    boats = [f"The price of boat number {at} went up, the price of this boat is {at}00." for at in range(14)]
    stage = await open_long(database, instruction, "I will.", *boats)

    assert instruction in await note(stage, "What is the price of boat number 7?")


def test_a_stubbed_output_counts_as_hidden() -> None:
    call = ToolCall("c1", "grep", "{}")
    said = [
        Said(Role.USER, "Look."),
        Said(Role.ASSISTANT, "", (call,)),
        Said(Role.TOOL, "found " * 400, tool_call_id="c1"),
    ]
    said += [Said(Role.ASSISTANT, "Done.")]
    given = conversation_input(said, count=by_length)
    assert last_hidden_position(plan_context(given).view) == 0
    pruned = replace(given, view_state=replace(given.view_state, pruned_through_position=4))

    assert last_hidden_position(plan_context(pruned).view) == 3


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("I add a login. What would you suggest?", ("I add a login. What would you suggest?",)),
        ("What is the gate code, and who has the key?", ("What is the gate code", "who has the key?")),
        ("When do we sail? Is Vera coming?", ("When do we sail?", "Is Vera coming?")),
        (f"{LONG * 3}. When do we sail?", ("When do we sail?",)),
        ("Who sails? What boat? When? Which harbour? Whose sail?", ("What boat?", "Which harbour?", "Whose sail?")),
        ("What time is it?", ()),
        ("Can you make it a bit shorter?", ()),
        ("Wie spät ist es?", ()),
        ("Kannst du mir helfen?", ()),
        ("¿Cómo estás?", ()),
        ("Comment ça va ?", ()),
        ("你好吗？", ()),
        ("What was the joke?", ("What was the joke?",)),
        ("Was haben wir besprochen?", ("Was haben wir besprochen?",)),
        ("What is my name?", ("What is my name?",)),
        ("What did I say first?", ("What did I say first?",)),
        ("It rains.", ()),
    ],
)
def test_each_question_of_a_message_is_looked_up_by_itself(text: str, questions: tuple[str, ...]) -> None:
    assert questions_of(text) == questions


async def test_a_note_stays_while_the_turn_grows_and_older_messages_leave(database: Database) -> None:
    stage = await open_long(database, FACT, "Noted.")
    sums = ["+".join([str(number)] * 150) for number in range(ROUNDS)]
    steps = [Call((ToolCall(f"c{at}", "calculator", json.dumps({"expression": sums[at]})),)) for at in range(ROUNDS)]
    stage.model.script(*steps, Say("Here."))

    await stage.turn(QUESTION)

    notes = [
        [text for message in request.prompt.messages if "<quoted_history>" in (text := text_of(message.content))]
        for request in stage.model.requests
    ]
    assert [FACT in "".join(note) for note in notes] == [True] * (ROUNDS + 1)
    assert notes == [notes[0]] * (ROUNDS + 1)
