"""Sixty turns of five graphs that others wrote, in a window of 8,000 tokens, with two deaths of the process."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from agent_graphs.playing import calling, die_in_request, play, small_window
from fakes.provider_double.double import ProviderDouble, Verdict
from fakes.provider_double.script import Failure, ScriptStep
from fakes.stage import Stage
from throughline.db.database import Database
from throughline.domain.message import Message, Role, text_of
from throughline.domain.run import RunStatus


def look_up(turn: int) -> ScriptStep:
    return calling(10 * turn, "look_up", json.dumps({"city": f"town {turn}"}))


def say(text: str) -> ScriptStep:
    return ScriptStep(text)


def react(turn: int) -> Sequence[ScriptStep]:
    return look_up(turn), say(f"Answer {turn}.")


def plan_and_execute(turn: int) -> Sequence[ScriptStep]:
    plan = calling(10 * turn + 1, "Plan", json.dumps({"steps": [f"Look up town {turn}."]}))
    response = calling(10 * turn + 2, "Response", json.dumps({"answer": f"Answer {turn}."}))
    return plan, look_up(turn), say("It is done."), response


def supervisor(turn: int) -> Sequence[ScriptStep]:
    hand_over = calling(10 * turn + 1, "transfer_to_weather_agent", "{}")
    return hand_over, look_up(turn), say(f"It is sunny in town {turn}."), say(f"Answer {turn}.")


def reflection(turn: int) -> Sequence[ScriptStep]:
    return say(f"Draft {turn}. " + "It has many words. " * 40), say(f"Criticism {turn}."), say(f"Answer {turn}.")


def deep_agent(turn: int) -> Sequence[ScriptStep]:
    todos = json.dumps({"todos": [{"content": f"Research {turn}", "status": "pending"}]})
    file = json.dumps({"path": "notes.txt", "text": f"Notes of turn {turn}."})
    return (
        calling(10 * turn + 1, "write_todos", todos),
        calling(10 * turn + 2, "task", json.dumps({"description": f"Look up town {turn}."})),
        look_up(turn),
        say("It is sunny."),
        calling(10 * turn + 3, "read_file", json.dumps({"path": "notes.txt"})),
        calling(10 * turn + 4, "write_file", file),
        say(f"Answer {turn}."),
    )


@dataclass(frozen=True)
class Played:
    """A graph: the model's answers in a turn, and two deaths.

    Each death is given by the request in which the process dies and the one with which the next process goes on: an
    unfinished node runs again from its start.
    """

    steps: Callable[[int], Sequence[ScriptStep]]
    deaths: tuple[tuple[int, int], tuple[int, int]]


GRAPHS = {
    "react": Played(react, ((0, 0), (1, 1))),
    "plan_and_execute": Played(plan_and_execute, ((2, 1), (3, 3))),
    "supervisor": Played(supervisor, ((2, 1), (3, 3))),
    "reflection": Played(reflection, ((1, 1), (2, 2))),
    "deep_agent": Played(deep_agent, ((3, 2), (6, 6))),
}


async def play_turn(stage: Stage, double: ProviderDouble, steps: Sequence[ScriptStep], turn: int) -> None:
    double.script(*steps)
    run = await play(stage, await stage.submit(f"Question {turn}: how is it in town {turn}?"))
    assert run.status is RunStatus.SUCCEEDED, run.error


async def play_death(stage: Stage, double: ProviderDouble, turn: int, played: Played, at: tuple[int, int]) -> None:
    steps, (dies_in, goes_on) = played.steps(turn), at
    double.script(*steps[:dies_in], ScriptStep(failure=Failure.HANG))
    run = await stage.submit(f"Question {turn}: how is it in town {turn}?")
    await die_in_request(stage, double, dies_in + 1)
    double.script(*steps[goes_on:])
    ended = await play(stage, run)
    assert ended.status is RunStatus.SUCCEEDED, ended.error


async def all_messages(stage: Stage) -> Sequence[Message]:
    messages: list[Message] = []
    while page := await stage.database.messages.get_messages_after(
        stage.session.id, messages[-1].id if messages else None
    ):
        messages += page
    return messages


def texts(messages: Sequence[Message], role: Role, beginning: str) -> list[str]:
    found = (text_of(message.content) for message in messages if message.role is role)
    return [text for text in found if text.startswith(beginning)]


def check_kept(messages: Sequence[Message], turns: int) -> None:
    """Check that each question and answer is stored once, and each call with one result."""
    questions = texts(messages, Role.USER, "Question")
    assert [text.partition(":")[0] for text in questions] == [f"Question {turn}" for turn in range(turns)]
    assert texts(messages, Role.ASSISTANT, "Answer") == [f"Answer {turn}." for turn in range(turns)]
    calls = [call.id for message in messages for call in message.tool_calls]
    assert calls == [message.tool_call_id for message in messages if message.role is Role.TOOL]
    assert [message.position for message in messages] == [*range(1, len(messages) + 1)]


@pytest.mark.parametrize("turns", [8, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.proof])])
@pytest.mark.parametrize("name", GRAPHS)
async def test_a_graph_loses_nothing_and_never_asks_too_much(
    database: Database, provider_double: ProviderDouble, name: str, turns: int
) -> None:
    played = GRAPHS[name]
    deaths = {turns // 3: played.deaths[0], 2 * turns // 3: played.deaths[1]}
    async with small_window(database, provider_double, name) as stage:
        for turn in range(turns):
            if turn in deaths:
                await play_death(stage, provider_double, turn, played, deaths[turn])
            else:
                await play_turn(stage, provider_double, played.steps(turn), turn)
        messages = await all_messages(stage)

    refused = [one for one in provider_double.requests if one.verdict in {Verdict.OVER_WINDOW, Verdict.INVALID}]
    assert [one.refusal for one in refused] == []
    check_kept(messages, turns)
