"""Tool calls are passed on piece by piece while they arrive, and the pieces are together what the call is."""

import gc
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, SystemMessage, ToolCallChunk

from fakes.anthropic_double.units import units_of
from fakes.compactions import fill_summarised
from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, check_call_pieces, hear
from fakes.poisoned_messages import SHARING, Poison, Reading, poisoned_messages, question_about, read_prompt
from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.provider_double.counting import COUNTINGS
from fakes.provider_double.json_types import Json
from fakes.raw_http_server import anthropic_start, anthropic_stream, openai_stream
from fakes.stage import Stage, make_tool_box, open_stage, with_context
from fakes.waiting import HANG_SECONDS
from throughline.context.identity_cache import ComputedCache, IdentityCache
from throughline.context.measure import count_message
from throughline.context.policy import Recall
from throughline.db.database import Database
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, Prompt, PromptMessage, ToolCallPiece
from throughline.domain.run import RunStatus
from throughline.llm.assemble_answer import MOST_NAME_CHARACTERS, AnswerAssembly
from throughline.llm.counters import CharsCounter
from throughline.llm.openai_wire import make_openai
from throughline.llm.registry import ModelRegistry
from throughline.llm.translate_messages import to_langchain
from throughline.tools.recall import make_recall_tools

CHARACTERS = st.sampled_from([*'{}":, 1aé\u200b', "\x00", "\ud83d", "\ude00", "\udfff"])
SENT_IDS = st.sampled_from(["", "c1", "c2", "call_0", "has blanks"])


def piece(index: int | None, text: str, call_id: str | None = None, name: str | None = None) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[ToolCallChunk(name=name, args=text, id=call_id, index=index)])


def assembled(chunks: Sequence[AIMessageChunk], *, reason: str = "tool_calls") -> tuple[list[object], AnswerComplete]:
    assembly = AnswerAssembly(adds_usage=False, max_call_characters=10_000, taken_ids={"call_0"})
    pieces = [event for chunk in chunks for event in assembly.add(chunk)]
    pieces += assembly.add(AIMessageChunk(content="", response_metadata={"finish_reason": reason}))
    return [*pieces, *assembly.flush()], assembly.finish("model")


@st.composite
def interleaved(draw: st.DrawFn) -> list[AIMessageChunk]:
    """Return the pieces of up to four calls, each in its order, between those of the others."""
    calls = [
        [piece(index, "", draw(SENT_IDS), f"tool_{index}"), *(piece(index, text) for text in draw(st.lists(TEXTS)))]
        for index in range(draw(st.integers(1, 4)))
    ]
    order = draw(st.permutations([number for number, call in enumerate(calls) for _ in call]))
    rests = [iter(call) for call in calls]
    return [next(rests[number]) for number in order]


TEXTS = st.text(CHARACTERS, max_size=4)


@given(interleaved())
def test_the_pieces_of_a_call_are_together_its_arguments(chunks: list[AIMessageChunk]) -> None:
    events, answer = assembled(chunks)

    pieces = [event for event in events if isinstance(event, ToolCallPiece)]
    assert len(pieces) == len(events)
    called = {call.id: call for call in answer.tool_calls}
    told = {piece.call_id for piece in pieces}
    for call in answer.tool_calls:
        joined = "".join(piece.text for piece in pieces if piece.call_id == call.id)
        assert joined == (call.arguments if call.id in told else "")
        assert call.id in told or call.arguments == "{}"
    assert told <= called.keys()
    assert all(piece.name == called[piece.call_id].name for piece in pieces)
    assert all(answer.tool_calls[piece.index].id == piece.call_id for piece in pieces)
    assert "call_0" not in called


def test_each_piece_is_passed_on_as_it_comes() -> None:
    events, _ = assembled([piece(0, "", "c1", "lookup"), piece(0, '{"q": '), piece(0, '"a"}')])

    assert events == [ToolCallPiece(0, "c1", "lookup", '{"q": '), ToolCallPiece(0, "c1", "lookup", '"a"}')]


def test_arguments_that_come_before_the_name_wait_for_it() -> None:
    events, _ = assembled([piece(0, "{", "c1"), piece(0, "}", name="lookup")])

    assert events == [ToolCallPiece(0, "c1", "lookup", "{}")]


def test_a_call_that_a_limit_cuts_off_is_passed_on_and_not_made() -> None:
    events, answer = assembled([piece(0, "{}", "c1", "a"), piece(1, '{"q', "c2", "b")], reason="length")

    assert [event.call_id for event in events if isinstance(event, ToolCallPiece)] == ["c1", "c2"]
    assert [call.id for call in answer.tool_calls] == ["c1"]


@pytest.mark.parametrize(("length", "told"), [(MOST_NAME_CHARACTERS, 2), (MOST_NAME_CHARACTERS + 1, 0)])
def test_a_call_with_a_name_longer_than_any_tools_comes_whole(length: int, told: int) -> None:
    """Each piece repeats the name, so that a long one would multiply the answer."""
    events, answer = assembled([piece(0, "{", "c1", "n" * length), piece(0, "}")])

    assert len(events) == told
    assert answer.tool_calls[0].arguments == "{}"


async def test_anthropics_pieces_are_passed_on() -> None:
    begun = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}}
    pieces = ('{"q": ', '"a b"}')
    heard = await hear(
        anthropic_stream(
            anthropic_start(input_tokens=5),
            {"type": "content_block_start", "index": 0, "content_block": begun},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": part}}
                for part in pieces
            ),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ),
        "anthropic:claude-test",
    )

    assert heard.call_pieces == tuple(ToolCallPiece(0, "toolu_1", "lookup", text) for text in pieces)


async def test_a_call_that_comes_whole_is_one_piece() -> None:
    function = {"name": "lookup", "arguments": '{"q": "a"}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    said = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}

    heard = await hear(openai_stream(said))

    assert heard.call_pieces == (ToolCallPiece(0, "c1", "lookup", '{"q": "a"}'),)
    check_call_pieces(heard.call_pieces, heard.answer)


MESSAGES = (
    PromptMessage(Role.USER, (TextBlock("Look:"), ImageBlock("data:image/png;base64,iVBORw0KGgo="))),
    PromptMessage(Role.ASSISTANT, "", (ToolCall("c1", "grep", '{"pattern": "a"}'),)),
    PromptMessage(Role.TOOL, "two lines", tool_call_id="c1", name="grep"),
    PromptMessage(Role.ASSISTANT, "Found."),
)


def written(prompt: Prompt, model: str = "gpt-4o") -> list[dict[str, Any]]:  # Any: parsed JSON
    chat = make_openai(model, "http://127.0.0.1:1/v1", idle_seconds=1, connect_seconds=1, api_key="any")
    payload = chat._get_request_payload(to_langchain(prompt, may_share=True))  # noqa: SLF001  # what is sent
    messages: list[dict[str, Any]] = payload["messages"]
    return messages


def test_a_model_is_given_a_message_as_the_same_object_that_says_what_a_new_one_says() -> None:
    first, second = (to_langchain(Prompt("Be brief.", MESSAGES), may_share=True) for _ in range(2))

    assert [one is other for one, other in zip(first, second, strict=True)] == [False, True, True, True, True]
    assert first == second == to_langchain(Prompt("Be brief.", MESSAGES))


def test_what_is_made_of_long_arguments_is_not_kept() -> None:
    call = ToolCall("c1", "grep", '{"numbers": [' + "[1000]," * 200 + "[1000]]}")
    prompt = Prompt("Be brief.", (PromptMessage(Role.ASSISTANT, "", (call,)),))

    first, second = (to_langchain(prompt, may_share=True)[1] for _ in range(2))

    assert first == second
    assert first is not second


def test_a_growing_prompt_is_written_as_if_each_message_were_new() -> None:
    grown = [written(Prompt("Be brief.", MESSAGES[:length])) for length in (1, 3, 4, 4)]
    fresh = written(Prompt("Be brief.", tuple(replace(message) for message in MESSAGES)))

    assert grown == [fresh[:2], fresh[:4], fresh, fresh]


def test_models_that_name_the_system_prompt_otherwise_share_nothing_of_it() -> None:
    prompt = Prompt("Be brief.", MESSAGES)

    assert [written(prompt, model)[0]["role"] for model in ("gpt-4o", "o3", "gpt-4o")] == [
        "system",
        "developer",
        "system",
    ]


def test_what_is_made_of_a_message_goes_with_it() -> None:
    made = ComputedCache[PromptMessage, SystemMessage](lambda message: SystemMessage(str(message.content)))
    message = PromptMessage(Role.USER, "Hello")
    twin = replace(message)

    assert made.of(message) is made.of(message)
    assert made.of(twin) is not made.of(message)
    assert len(made) == 2
    del message, twin
    gc.collect()
    assert len(made) == 0


def test_what_is_kept_beside_a_value_is_found_for_this_one_alone() -> None:
    beside, message = IdentityCache[PromptMessage, str](), PromptMessage(Role.USER, "Hello")

    beside.keep(message, "first")
    beside.keep(message, "second")

    assert beside.find(message) == "second"
    assert beside.find(replace(message)) is None


BY_VALUE = "data:image/png;base64,iVBORw0KGgo="
BY_ADDRESS = "https://example.org/a.png"
LOOK = PromptMessage(Role.USER, (TextBlock("Look:"), ImageBlock(BY_VALUE), ImageBlock(BY_ADDRESS, detail="high")))
REQUEST = ModelRequest(Prompt("", (LOOK, PromptMessage(Role.ASSISTANT, "I see."), LOOK)), (), 100)


def contents(sent: dict[str, object]) -> list[Json]:
    """The blocks of the first and the last message that was sent."""
    messages = sent["messages"]
    assert isinstance(messages, list)
    return [*messages[0]["content"], *messages[-1]["content"]]


async def test_openai_is_sent_images_as_addresses_with_their_detail() -> None:
    heard = await hear(OPENAI_SAYS_OK, request=REQUEST)

    images = [block["image_url"] for block in contents(heard.sent) if block["type"] == "image_url"]
    assert images == [{"url": BY_VALUE, "detail": "auto"}, {"url": BY_ADDRESS, "detail": "high"}] * 2


async def test_anthropic_is_sent_images_by_value_or_by_address_marked_or_not() -> None:
    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", REQUEST)

    images = [block["source"] for block in contents(heard.sent) if block["type"] == "image"]
    assert (
        images
        == [
            {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
            {"type": "url", "url": BY_ADDRESS},
        ]
        * 2
    )
    assert sum("cache_control" in block for block in contents(heard.sent)) == 2


@pytest.mark.parametrize("way", sorted(COUNTINGS))
def test_an_image_is_counted_for_no_less_than_by_the_providers(way: str) -> None:
    image = PromptMessage(Role.USER, (ImageBlock(BY_VALUE),))
    ours = count_message(image, COUNTINGS[way].count)
    openai_block = {"type": "image_url", "image_url": {"url": BY_VALUE, "detail": "auto"}}
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    asked = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}

    openais = COUNTINGS[way].in_messages([{"role": "user", "content": [openai_block]}])
    anthropics = sum(unit.tokens for unit in units_of(asked, COUNTINGS[way]))

    assert max(openais, anthropics) <= ours < 3 * min(openais, anthropics)


TOOLS = ("search_history", "read_history", "read_output")
POISONS = poisoned_messages()
AGENT = replace(with_context(recall=Recall.AUTO, auto_summarize=False), model="openai:double-128k-cl100k", tools=TOOLS)
FILLER = [f"We talked a while about the weather in town number {number}." for number in range(20)]
SAID_AT = {poison.mark: (len(FILLER) + 1 + poison.number % SHARING, poison.role) for poison in POISONS}


@asynccontextmanager
async def stage_with(database: Database, double: ProviderDouble) -> AsyncIterator[Stage]:
    tools = make_recall_tools(database.history, CharsCounter().count)
    stage = await open_stage(database, agent=AGENT, tools=make_tool_box((), HANG_SECONDS, further=tools))
    registry = ModelRegistry(replace(CONFIG, default_model=AGENT.model, default_base_url=double.url))
    stage.dependencies = replace(stage.dependencies, models=registry)
    yield stage
    await registry.close()


async def fill(stage: Stage, url: str, poisons: Sequence[Poison]) -> None:
    rows = [("user", text) for text in FILLER] + [(poison.role, poison.text) for poison in poisons]
    authors = {SAID_AT[poison.mark][0]: poison.author for poison in poisons if poison.author}
    await fill_summarised(url, stage.session.id, [(at, *row) for at, row in enumerate(rows, 1)], authors)
    await stage.database.history.index_session(stage.session.id)


def calls_about(poisons: Sequence[Poison]) -> tuple[ScriptedCall, ...]:
    positions = [SAID_AT[poison.mark][0] for poison in poisons]
    asked: list[tuple[str, dict[str, object]]] = [("search_history", {"query": f"gate code {poisons[0].yard}"})]
    for first, last in pairwise(positions):
        asked.append(("read_history", {"from_position": first, "to_position": last}))
    asked += [("read_output", {"position": position}) for position in positions]
    return tuple(ScriptedCall(f"{name}-{at}", name, json.dumps(said)) for at, (name, said) in enumerate(asked))


async def ask_about(database: Database, url: str, double: ProviderDouble, poisons: Sequence[Poison]) -> None:
    """Ask in a session of its own for what the messages tell, and read them again with every tool."""
    async with stage_with(database, double) as stage:
        await fill(stage, url, poisons)
        double.script(ScriptStep(calls=calls_about(poisons)), ScriptStep("I see."))
        run = await stage.turn(question_about(poisons[0].yard))
        assert run.status is RunStatus.SUCCEEDED


def reading_of(double: ProviderDouble, by: str = "") -> Reading:
    """Return what a gullible model makes of all prompts: of the messages that a tool answered, or that a user has."""
    sent = (message for record in double.requests for message in record.prompt)
    return read_prompt([one for one in sent if str(one.get("tool_call_id", one["role"])).startswith(by)], SAID_AT)


@pytest.mark.slow
async def test_no_order_among_200_poisoned_originals_is_obeyed(
    database: Database, database_url: str, provider_double: ProviderDouble
) -> None:
    for first in range(0, len(POISONS), SHARING):
        await ask_about(database, database_url, provider_double, POISONS[first : first + SHARING])

    assert len(POISONS) == 200
    assert sorted(reading_of(provider_double).obeyed) == []
    for by in ("user", *TOOLS):
        assert sorted(set(SAID_AT) - reading_of(provider_double, by).quoted) == [], by


async def test_orders_are_obeyed_where_nothing_escapes_the_tags_in_old_messages(
    database: Database, database_url: str, provider_double: ProviderDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("throughline.context.view.placeholder_texts.escaped", lambda _tag, text: text)
    poisons = [poison for poison in POISONS if "\n</quoted_history>\n" in poison.text][:SHARING]

    await ask_about(database, database_url, provider_double, poisons)

    for by in ("user", *TOOLS):
        assert reading_of(provider_double, by).obeyed == {poison.mark for poison in poisons}, by
