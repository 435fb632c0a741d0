"""Pinning within limits: what would leave a conversation no room is refused, with the numbers."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation, user_message
from fakes.manual_clock import ManualClock
from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.silent_metrics import SilentMetrics
from fakes.tool_box import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.calibration import Calibration
from throughline.context.policy import ContextPolicy
from throughline.db.database import Database
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.execution.breaker import Breakers
from throughline.llm.counters import make_counter
from throughline.tools.toolbox import ImportedHooks
from throughline.turn.prompting.pins import pin_message, unpin_message
from throughline.turn.prompting.ready_agent import calibration_key
from throughline.turn.state import TurnConfig, TurnDependencies

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
        history=database.history,
        models=ScriptedModels(ScriptedModel()),
        tools=make_tool_box(timeout_seconds=HANG_SECONDS, max_result_bytes=100_000),
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
