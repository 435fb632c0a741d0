"""Pins: a message with its whole group, in the name of its owner, set and taken off any number of times."""

import asyncio
import json
from dataclasses import dataclass, replace

import pytest

from fakes.conversations import Conversation, answer_message, everything, open_conversation, user_message
from fakes.raw_sql import run_sql
from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.silent_metrics import SilentMetrics
from fakes.stage import make_tool_box
from fakes.tool_servers import PlayedServers
from fakes.waiting import HANG_SECONDS, ManualClock
from throughline.agent_graphs.imported_graphs import ImportedGraphs
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.calibration import Calibration
from throughline.context.policy import ContextPolicy
from throughline.db.database import Database
from throughline.db.sessions.pins import REACH
from throughline.db.sessions.redaction import Redaction
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.execution.breaker import Breakers
from throughline.llm.counters import make_counter
from throughline.tools.toolbox import ImportedHooks
from throughline.turn.prompting.pins import pin_message, unpin_message
from throughline.turn.prompting.ready_agent import calibration_key
from throughline.turn.recall.history_search import HistorySearch
from throughline.turn.state import TurnConfig, TurnDependencies


def anything_fits(elsewhere: int) -> None:
    del elsewhere


def calls(*ids: str, tokens: str = "x") -> NewMessage:
    return answer_message("", tool_calls=tuple(ToolCall(id=id_, name="search", arguments=tokens) for id_ in ids))


def result(call_id: str, text: str = "found") -> NewMessage:
    return NewMessage(Role.TOOL, text, Source.API, tool_call_id=call_id, name="search", token_count=7, counter="test")


async def append(conversation: Conversation, *messages: NewMessage) -> list[Message]:
    """Run one whole turn that stores these messages."""
    claimed = await conversation.start()
    store = conversation.database.messages.append_message
    stored = [await store(claimed.lease, f"step:{n}", message) for n, message in enumerate(messages)]
    await conversation.end(claimed.lease)
    return stored


async def group_of(conversation: Conversation, message: Message) -> list[int]:
    group = await conversation.database.pins.find_group(conversation.owner_id, conversation.session.id, message.id)
    return [member.position for member in group.messages]


async def test_a_call_and_its_results_are_one_group_from_whichever_end(conversation: Conversation) -> None:
    stored = await append(
        conversation,
        user_message("go"),
        calls("a", "b"),
        result("b"),
        user_message("meanwhile"),
        result("a"),
        calls("a"),
        result("a", "again"),
        answer_message("done"),
    )

    found = [await group_of(conversation, message) for message in stored]

    assert found == [[1], [2, 3, 5], [2, 3, 5], [4], [2, 3, 5], [6, 7], [6, 7], [8]]
    group = await conversation.database.pins.find_group(conversation.owner_id, conversation.session.id, stored[6].id)
    assert group.messages == (stored[5], stored[6])
    assert (group.missing_results, group.is_orphan) == (0, False)


async def test_fifty_parallel_calls_are_one_group(conversation: Conversation) -> None:
    ids = [f"call-{n}" for n in range(50)]
    stored = await append(conversation, calls(*ids), *(result(id_) for id_ in reversed(ids)))

    assert await group_of(conversation, stored[50]) == list(range(1, 52))


async def test_what_is_missing_or_answers_nothing_is_said(conversation: Conversation) -> None:
    stored = await append(conversation, result("z"), calls("a", "b"), result("a"), result("a", "twice"))
    find_group = conversation.database.pins.find_group
    orphan, call, _, twice = [
        await find_group(conversation.owner_id, conversation.session.id, message.id) for message in stored
    ]

    assert (orphan.is_orphan, len(orphan.messages)) == (True, 1)
    assert (call.is_orphan, call.missing_results, len(call.messages)) == (False, 1, 2)
    assert twice.is_orphan


async def test_a_group_is_looked_for_within_reach_only(conversation: Conversation, database_url: str) -> None:
    stored = await append(conversation, calls("a"))
    await run_sql(
        database_url,
        "insert into messages (id, session_id, position, role, content, source)"
        " select gen_random_uuid(), $1, n, 'user', 'x', 'api' from generate_series(2, $2) n",
        conversation.session.id,
        REACH + 1,
    )
    await run_sql(database_url, "update sessions set message_count = $1", REACH + 1)
    late = await append(conversation, result("a"))

    group = await conversation.database.pins.find_group(conversation.owner_id, conversation.session.id, late[0].id)
    assert group.is_orphan
    assert await group_of(conversation, stored[0]) == [1]


async def test_pinning_and_unpinning_may_be_repeated_and_touch_no_message(
    conversation: Conversation, database_url: str
) -> None:
    stored = await append(conversation, calls("a"), result("a"), user_message("x", tokens=30))
    ids = tuple(message.id for message in stored[:2])
    pins, who = conversation.database.pins, (conversation.owner_id, conversation.session.id)
    before = await everything(database_url)

    await asyncio.gather(*(pins.pin(*who, ids, anything_fits) for _ in range(5)))
    pinned = await pins.pin(*who, ids, anything_fits)
    await asyncio.gather(*(pins.unpin(*who, ids) for _ in range(5)))
    unpinned = await pins.unpin(*who, ids)

    assert [(message.id, message.pinned) for message in pinned] == [(id_, True) for id_ in ids]
    assert unpinned == tuple(stored[:2])
    assert await everything(database_url) == before


@pytest.mark.calm("it counts tries")
async def test_what_is_pinned_elsewhere_leaves_out_the_group_itself(conversation: Conversation) -> None:
    stored = await append(conversation, calls("a"), result("a"), user_message("x", tokens=30))
    await conversation.pin(*stored)
    other = await open_conversation(conversation.database)
    await other.pin(*await other.say("elsewhere", tokens=1000))
    pins, who, told = conversation.database.pins, (conversation.owner_id, conversation.session.id), list[int]()

    await pins.pin(*who, tuple(message.id for message in stored[:2]), told.append)
    await pins.pin(*who, (stored[2].id,), told.append)

    assert told == [30, 8]


async def test_what_the_check_refuses_is_not_pinned(conversation: Conversation) -> None:
    def refuse(_elsewhere: int) -> None:
        raise InvalidInput("full")

    stored = await append(conversation, user_message("x", tokens=30))
    with pytest.raises(InvalidInput, match="full"):
        await conversation.database.pins.pin(conversation.owner_id, conversation.session.id, (stored[0].id,), refuse)

    assert [message.pinned for message in await conversation.messages()] == [False]


async def test_another_owner_or_session_pins_and_finds_nothing(conversation: Conversation, database_url: str) -> None:
    stored = await append(conversation, calls("a"), result("a"))
    await conversation.pin(stored[0])
    stranger = await open_conversation(conversation.database, "mallory")
    twin = await open_conversation(conversation.database)
    own = (await twin.say("own"))[0]
    pins = conversation.database.pins
    before = await everything(database_url)

    for owner_id, session_id in (
        (stranger.owner_id, conversation.session.id),
        (stranger.owner_id, stranger.session.id),
        (conversation.owner_id, twin.session.id),
    ):
        for write in (
            pins.find_group(owner_id, session_id, stored[0].id),
            pins.pin(owner_id, session_id, (stored[1].id,), anything_fits),
            pins.unpin(owner_id, session_id, (stored[0].id,)),
        ):
            with pytest.raises(NotFound):
                await write
    with pytest.raises(NotFound, match=str(stored[1].id)):
        await pins.pin(twin.owner_id, twin.session.id, (own.id, stored[1].id), anything_fits)
    with pytest.raises(NotFound):
        await pins.find_group(conversation.owner_id, conversation.session.id, MessageId(conversation.session.id))

    assert await everything(database_url) == before


async def test_pins_go_with_their_session(conversation: Conversation, database_url: str) -> None:
    stored = await conversation.say("a")
    await conversation.pin(*stored)

    await asyncio.gather(
        conversation.database.sessions.delete(conversation.owner_id, conversation.session.id),
        *(_tries_to_pin(conversation, stored[0]) for _ in range(4)),
    )

    assert await run_sql(database_url, "select count(*) from message_pins") == [(0,)]
    assert not await _tries_to_pin(conversation, stored[0])


async def _tries_to_pin(conversation: Conversation, message: Message) -> bool:
    try:
        await conversation.pin(message)
    except NotFound:
        return False
    return True


WINDOW = 4000
COUNTER = "chars"
LEARNED_KEY = calibration_key(ScriptedModel(), make_counter(COUNTER))
AGENT = AgentDefinition(
    name="assistant",
    description="",
    model="",
    base_url=None,
    system_prompt="You are a helpful assistant.",
    tools=(),
    max_tool_rounds=3,
    context=ContextPolicy(token_counter=COUNTER, response_reserve=512, window=WINDOW),
)


@dataclass
class Pinning:
    """A conversation, and what of a turn has a say in its pins."""

    conversation: Conversation
    dependencies: TurnDependencies

    async def pin(self, message: Message) -> tuple[Message, ...]:
        conversation = self.conversation
        return await pin_message(self.dependencies, conversation.database.pins, conversation.session, message.id)

    async def unpin(self, message: Message) -> tuple[Message, ...]:
        return await unpin_message(self.conversation.database.pins, self.conversation.session, message.id)

    async def say(self, *messages: NewMessage) -> list[Message]:
        """Run one whole turn; each message bears the name of the agent's counter."""
        counter = make_counter(COUNTER).name
        claimed = await self.conversation.start()
        append = self.conversation.database.messages.append_message
        stored = [
            await append(claimed.lease, f"step:{n}", replace(message, counter=counter))
            for n, message in enumerate(messages)
        ]
        await self.conversation.end(claimed.lease)
        return stored


@pytest.fixture
async def pinning(database: Database) -> Pinning:
    clock = ManualClock()
    dependencies = TurnDependencies(
        runs=database.runs,
        messages=database.messages,
        events=database.events,
        history=HistorySearch(database.history),
        memories=database.memories,
        models=ScriptedModels(ScriptedModel()),
        tools=make_tool_box(timeout_seconds=HANG_SECONDS, max_result_bytes=100_000),
        tool_servers=PlayedServers(),
        agent_graphs=ImportedGraphs(lambda _: ()),
        agents=AgentRegistry([AGENT]),
        calibrations=database.calibrations,
        summaries=database.summaries,
        breakers=Breakers(clock),
        usage=database.usage,
        hooks=ImportedHooks(),
        metrics=SilentMetrics(),
        clock=clock,
        make_counter=make_counter,
        config=TurnConfig(token_counter=COUNTER),
    )
    return Pinning(await open_conversation(database), dependencies)


async def test_pins_up_to_a_fifth_of_the_window_are_taken_and_no_more(pinning: Pinning) -> None:
    await pinning.dependencies.calibrations.save(
        calibration_key(ScriptedModel(), make_counter(COUNTER)), Calibration(ratio=1.0, samples=10**9)
    )
    texts = [user_message("x", tokens=tokens) for tokens in (490, 290, 299, 283)]
    stored = await pinning.say(*texts)
    share = int(0.2 * WINDOW)

    await pinning.pin(stored[0])
    with pytest.raises(InvalidInput) as refused:
        await pinning.pin(stored[2])
    await pinning.pin(stored[1])

    assert share == 800
    assert "takes 305 tokens, 500 are pinned already" in refused.value.detail
    assert "800" in refused.value.detail
    assert "4000" in refused.value.detail
    assert refused.value.field == "message_id"
    with pytest.raises(InvalidInput):
        await pinning.pin(stored[3])
    await pinning.unpin(stored[1])
    assert [message.pinned for message in await pinning.pin(stored[3])] == [True]


async def test_pins_made_at_once_keep_to_the_limit_too(pinning: Pinning) -> None:
    await pinning.dependencies.calibrations.save(
        calibration_key(ScriptedModel(), make_counter(COUNTER)), Calibration(ratio=1.0, samples=10**9)
    )
    stored = await pinning.say(*(user_message("x", tokens=90) for _ in range(20)))

    ends = await asyncio.gather(*(pinning.pin(message) for message in stored), return_exceptions=True)

    refused = [end for end in ends if isinstance(end, InvalidInput)]
    pinned = [message for message in await pinning.conversation.messages() if message.pinned]
    assert (len(pinned), len(refused)) == (8, 12)
    assert all("are pinned already" in end.detail for end in refused)


async def test_a_call_is_pinned_and_unpinned_with_all_its_results(pinning: Pinning) -> None:
    call = answer_message("", tool_calls=(ToolCall("a", "search", "{}"), ToolCall("b", "search", "{}")))
    results = [NewMessage(Role.TOOL, "r", Source.API, tool_call_id=id_, name="s", token_count=5) for id_ in "ab"]
    stored = await pinning.say(call, *results)

    once, twice = await pinning.pin(stored[2]), await pinning.pin(stored[0])
    assert [message.pinned for message in await pinning.conversation.messages()] == [True] * 3
    gone, again = await pinning.unpin(stored[1]), await pinning.unpin(stored[0])

    assert once == twice == tuple(replace(message, pinned=True) for message in stored)
    assert gone == again == tuple(stored)


async def test_a_call_that_waits_for_results_and_a_result_without_call_are_refused(pinning: Pinning) -> None:
    orphan = NewMessage(Role.TOOL, "r", Source.API, tool_call_id="z", name="s")
    call = answer_message("", tool_calls=(ToolCall("a", "search", "{}"),))
    stored = await pinning.say(orphan, call)

    with pytest.raises(InvalidInput, match="no open call"):
        await pinning.pin(stored[0])
    with pytest.raises(InvalidInput, match="waits for 1 of its results"):
        await pinning.pin(stored[1])

    assert [await pinning.unpin(message) for message in stored] == [(message,) for message in stored]


async def test_a_pinned_message_stays_pinned_where_the_limit_has_sunk_below_it(pinning: Pinning) -> None:
    stored = await pinning.say(user_message("x", tokens=10_000))
    await pinning.conversation.pin(stored[0])

    assert [message.pinned for message in await pinning.pin(stored[0])] == [True]


async def test_a_message_that_is_not_there_is_not_found(pinning: Pinning) -> None:
    pins, session = pinning.conversation.database.pins, pinning.conversation.session

    with pytest.raises(NotFound):
        await pin_message(pinning.dependencies, pins, session, MessageId(session.id))
    with pytest.raises(NotFound):
        await unpin_message(pins, session, MessageId(session.id))


async def test_redacting_a_message_of_a_pinned_group_leaves_no_part_of_it_pinned_alone(
    database: Database,
) -> None:
    conversation = await open_conversation(database)
    claimed = await conversation.start()
    append = database.messages.append_message
    call = ToolCall("c1", "grep", json.dumps({"q": "secret"}))
    asked = await append(claimed.lease, "assistant:0", answer_message("", tool_calls=(call,)))
    result = NewMessage(Role.TOOL, "kept", Source.API, tool_call_id="c1", name="grep")
    answered = await append(claimed.lease, "tool:0:0", result)
    await conversation.end(claimed.lease)
    await conversation.pin(asked, answered)

    await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, asked.id))

    assert len({message.pinned for message in await conversation.messages()}) == 1
