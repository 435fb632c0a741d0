"""Summaries that are written or adopted while a turn runs: no call loses its result, and no message is lost."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from context.prompt_judge import anthropic_faults, faults
from fakes.compactions import SUMMARY, fill
from fakes.conversations import Conversation, is_loaded_whole, open_conversation
from fakes.one_tool import OneTool
from fakes.pooler import urls_of
from fakes.scripted_model import Call, Say, Step
from fakes.stage import open_stage, with_context
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import SummaryConflict
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ModelRequest
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now
from throughline.turn.take_turn import take_turn


@dataclass
class SlowTool(OneTool):
    """A tool that returns once a test lets it."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        self.begun.set()
        await self.released.wait()
        return await OneTool.run(self, call, context)


@pytest.mark.parametrize("calls", [1, 3])
async def test_two_summaries_on_demand_while_a_tool_runs_leave_its_call_with_its_result(
    database: Database, calls: int
) -> None:
    tool = SlowTool("dig", "a bone", repeatable=True)
    asked = Call(tuple(ToolCall(f"c{number}", "dig", "{}") for number in range(calls)))
    agent = replace(with_context(window=8192, min_recent_messages=1), tools=("dig",))
    stage = await open_stage(database, agent=agent, tools=tool)
    await fill(stage, 6)
    answers: Iterator[Step] = iter([asked, Say("a bone"), Say("again")])

    def by_request(request: ModelRequest) -> Step:
        is_summary = "You write the memory of a conversation" in request.prompt.system
        return Say(SUMMARY) if is_summary else next(answers)

    stage.model.by_request = by_request
    run = await stage.submit("dig")
    turn = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))
    await tool.begun.wait()

    first = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    second = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(instructions="shorter"))
    tool.released.set()
    await turn
    await stage.turn("and now?")

    assert first.outcome == "adopted"
    assert second.session.summary_through_position < 14  # the message "dig" and what follows it stay
    for request in stage.model.requests:
        assert faults(request.prompt) == []
        assert anthropic_faults(request.prompt) == []
    stored = await stage.messages()
    results = [message.tool_call_id for message in stored if message.role is Role.TOOL]
    assert sorted(map(str, results)) == [f"c{number}" for number in range(calls)]
    assert [message.content for message in stored if message.run_id == run.id][-1] == "a bone"


async def adopt_beside_a_message(conversation: Conversation, other: Database, number: int) -> bool:
    """Adopt a summary in one process and store the next message in another, at once; return whether it was adopted."""
    loaded = await conversation.database.messages.load_context(conversation.session.id, None, 1000)
    adoption = await conversation.adoption(loaded.history[-2])
    elsewhere = replace(conversation, database=other)
    tries = [conversation.database.summaries.adopt_summary(adoption), elsewhere.say(f"message {number}")]
    done = await asyncio.gather(*(tries if number % 2 else reversed(tries)), return_exceptions=True)
    unexpected = [one for one in done if isinstance(one, BaseException) and not isinstance(one, SummaryConflict)]
    assert unexpected == []
    return not any(isinstance(one, SummaryConflict) for one in done)


async def check_beside_adoptions(database: Database, url: str, rounds: int) -> None:
    other = await Database.open(DatabaseConfig(**urls_of(url), pool_size=2))
    conversation = await open_conversation(database)
    await conversation.say("one", "two", "three")
    adopted = 0
    for number in range(rounds):
        adopted += await adopt_beside_a_message(conversation, other, number)
    await other.close()

    stored = await database.messages.get_messages_after(conversation.session.id, None, rounds + 10)
    loaded = await database.messages.load_context(conversation.session.id, None, 1000)
    assert adopted == rounds
    assert [message.content for message in stored[3:]] == [f"message {number}" for number in range(rounds)]
    assert [message.position for message in stored] == list(range(1, rounds + 4))
    assert is_loaded_whole(loaded)


async def test_a_message_at_the_moment_of_an_adoption_is_stored_by_another_process(
    database: Database, database_url: str
) -> None:
    await check_beside_adoptions(database, database_url, 20)


@pytest.mark.proof
@pytest.mark.slow
async def test_a_thousand_messages_at_the_moment_of_an_adoption_are_all_stored(
    database: Database, database_url: str
) -> None:
    await check_beside_adoptions(database, database_url, 1000)
