"""Approvals and questions of waiting turns in a thread: who decides, how often, and what the thread shows then."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta

import pytest

from agent_graphs.playing import graph_agent
from fakes.asking_server import BUY, BUY_MORE, BUYS, shop
from fakes.scripted_model import Call, Say
from fakes.slack_commands import ANNA, ASKS, BERT, DELETES, Asked, WaitingStage, buttons, shown, waiting_stage
from fakes.slack_delivery import IDENTITY, DeliveryStage
from fakes.slack_double import BOT_USER, TEAM, Failure, Posted, say
from fakes.slack_double.payloads import click
from fakes.waiting import until_found
from throughline.agents.registry import AgentRegistry
from throughline.domain.basic_types import RunId, UserId
from throughline.domain.tool import ApprovalDecision, Resolution
from throughline.slack.answers.decisions import read_click
from throughline.slack.read_event import StopSign
from throughline.slack.store.outbox import DeliveryClaim
from throughline.slack.store.slack_events import SlackLocation


@pytest.fixture
async def waiting(outgoing: DeliveryStage, ask: Asked) -> AsyncGenerator[WaitingStage]:
    async with waiting_stage(outgoing, ask) as stage:
        yield stage


async def run_of(waiting: WaitingStage) -> tuple[UserId, RunId]:
    ((owner_id, run_id),) = await waiting.outgoing.rows("select owner_id, id from runs")
    return UserId(owner_id), RunId(run_id)  # type: ignore[arg-type]  # ids


def texts(waiting: WaitingStage) -> list[str]:
    """What the thread's messages without blocks show, in their order."""
    return [message.text.strip() for message in waiting.posted if not message.blocks]


async def test_ten_clicks_at_once_approve_a_call_once(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,), text="I delete it."), Say("It is gone."))
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        message = await waiting.asked()
        asked, labels = shown(message), [button["text"]["text"] for button in buttons(message)]
        payload = waiting.payload("approve", message)
        await asyncio.gather(*(waiting.decisions.handle(payload) for _ in range(10)))
        await waiting.until_delivered()

    assert labels == ["Approve", "Reject"]
    assert '"file": "<!here> ```a.txt"' in asked
    assert "Messages here wait until this is decided" in asked
    assert waiting.deleted == ["<!here> ```a.txt"]
    assert [(one.text.strip() if not one.blocks else "question") for one in waiting.posted] == [
        "I delete it.",
        "question",
        "It is gone.",
    ]
    assert f"<@{ANNA}> approved `delete`" in shown(message)
    assert buttons(message) == []
    assert await waiting.statuses() == ["succeeded"]


async def test_nobody_else_decides(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,)), Say("It is kept."))
    said = say(f"<@{BOT_USER}> delete it", channel="C0GENERAL")
    async with waiting.delivering():
        await waiting.take(said)
        message = await waiting.asked()
        await waiting.click("approve", message, user=BERT)
        await waiting.outgoing.until(lambda: bool(waiting.notices))
        still = await waiting.statuses()
        await waiting.click("reject", message)
        await waiting.until_delivered()

    assert waiting.notices[0] == (BERT, f"Only <@{ANNA}> can decide this: their message began the turn.")
    assert (still, waiting.deleted) == (["waiting"], [])
    assert f"<@{ANNA}> rejected `delete`" in shown(message)


async def test_a_decision_over_rest_is_shown_and_later_clicks_are_refused(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,)), Say("It is kept."))
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        message = await waiting.asked()
        payload = waiting.payload("approve", message)
        given = Resolution("call_1", "Keep <it>.", decision=ApprovalDecision.REJECT, author="b & co")
        await waiting.outgoing.database.runs.resume(*await run_of(waiting), [given])
        await waiting.until_delivered()
        await waiting.decisions.handle(payload)
        await waiting.outgoing.until(lambda: bool(waiting.notices))

    assert "b &amp; co rejected `delete`" in shown(message)
    assert "Keep <it>." in shown(message)
    assert (texts(waiting), waiting.deleted) == (["It is kept."], [])
    assert waiting.notices == [(ANNA, "This was decided before, or the turn is over.")]


async def test_other_arguments_are_shown(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,)), Say("Gone."))
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        message = await waiting.asked()
        given = Resolution("call_1", decision=ApprovalDecision.EDIT, arguments='{"file": "b.txt"}', author="bert")
        await waiting.outgoing.database.runs.resume(*await run_of(waiting), [given])
        await waiting.until_delivered()

    assert waiting.deleted == ["b.txt"]
    assert "bert approved `delete` with other arguments" in shown(message)
    assert "b.txt" in shown(message)


async def test_a_wait_that_expires_is_said_and_the_answer_goes_on_below(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,), text="I delete it."), Say("Nobody decided."))
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        message = await waiting.asked()
        await waiting.outgoing.database.runs.expire_waits(waiting.turns.clock.now() + timedelta(days=400))
        await waiting.until_delivered()

    assert "Nothing came in time" in shown(message)
    assert texts(waiting) == ["I delete it.", "Nobody decided."]


async def test_a_click_counts_after_a_restart(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,), text="I delete it."), Say("It is gone."))
    await waiting.take(say("delete it"))
    async with waiting.delivering("first"):
        message = await waiting.asked()
    await waiting.click("approve", message)
    async with waiting.delivering("second"):
        await waiting.until_delivered()

    assert texts(waiting) == ["I delete it.", "It is gone."]
    assert len(waiting.posted) == 3
    assert waiting.deleted == ["<!here> ```a.txt"]
    assert "approved" in shown(message)


async def test_a_delivery_holds_nothing_while_its_run_waits(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,)), Say("Hello."), Say("Gone."), Say("Later."))
    async with waiting.delivering():
        said = await waiting.take(say("delete it"))
        message = await waiting.asked()
        await waiting.take(say("elsewhere"))
        await waiting.until_delivered()
        await waiting.take(say("behind it", thread_ts=said.ts))
        claimed = await waiting.outgoing.slack.outbox.claim(DeliveryClaim("other", limit=9, lease_seconds=60))
        leases = await waiting.outgoing.rows("select from slack_deliveries where lease_until is not null")
        statuses = await waiting.statuses()
        await waiting.click("approve", message)
        await waiting.until_delivered(3)

    assert (claimed, leases) == ((), [])
    assert statuses == ["waiting", "succeeded", "queued"]
    assert texts(waiting) == ["Hello.", "Gone.", "Later."]


@pytest.mark.parametrize("asked", ["question", "message"])
async def test_a_stop_reaction_ends_a_waiting_turn(waiting: WaitingStage, asked: str) -> None:
    waiting.turns.model.script(Call((DELETES,), text="I delete it."))
    async with waiting.delivering():
        said = await waiting.take(say("delete it"))
        message = await waiting.asked()
        place = SlackLocation(TEAM, said.channel, said.ts if asked == "message" else message.ts)
        await waiting.ask.commands.stop_by_sign(StopSign(place, ANNA))
        await waiting.until_delivered()

    assert texts(waiting) == ["I delete it.", "_Stopped._"]
    assert "the turn is stopped" in shown(message)
    assert buttons(message) == []
    assert await waiting.statuses() == ["cancelled"]


async def answered(waiting: WaitingStage, message: Posted) -> list[tuple[object, ...]]:
    assert "answered" in shown(message)
    return await waiting.outgoing.rows("select content, metadata ->> 'given_by' from messages where role = 'tool'")


async def test_a_question_is_answered_by_a_button(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((ASKS,)), Say("A good colour."))
    async with waiting.delivering():
        await waiting.take(say("paint it"))
        message = await waiting.asked()
        labels, text = [button["text"]["text"] for button in buttons(message)], shown(message)
        await waiting.click("1", message)
        await waiting.until_delivered()

    assert labels == ["red", "dark blue"]
    assert "Choose, or answer in this thread." in text
    assert "<@U0BERT001>" not in text
    assert await answered(waiting, message) == [("dark blue", f"slack:{TEAM}:{ANNA}")]


async def test_a_question_is_answered_by_the_next_message_of_the_asking_person(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((ASKS,)), Say("A good colour."), Say("Hello Bert."), Say("Hello elsewhere."))
    said = say(f"<@{BOT_USER}> paint it", channel="C0GENERAL")
    async with waiting.delivering():
        await waiting.take(said)
        message = await waiting.asked()
        await waiting.take(say("hi", channel="C0GENERAL", user=BERT, thread_ts=said.ts))
        await waiting.take(say(f"<@{BOT_USER}> hi", channel="C0GENERAL"))
        still = await waiting.statuses()
        await waiting.take(say("green", channel="C0GENERAL", thread_ts=said.ts))
        await waiting.until_delivered(3)

    assert still[0] == "waiting"
    assert await answered(waiting, message) == [("green", f"slack:{TEAM}:{ANNA}")]
    assert await waiting.statuses() == ["succeeded"] * 3


async def test_an_approval_is_no_question_that_a_message_answers(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,)), Say("Gone."), Say("Yes?"))
    async with waiting.delivering():
        said = await waiting.take(say("delete it"))
        message = await waiting.asked()
        await waiting.take(say("yes", thread_ts=said.ts))
        still = await waiting.statuses()
        await waiting.click("approve", message)
        await waiting.until_delivered(2)

    assert still == ["waiting", "queued"]
    assert texts(waiting) == ["Gone.", "Yes?"]


async def test_each_of_several_calls_is_decided_and_shown_for_itself(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES, ASKS)), Say("Both."), Say("never"))
    async with waiting.delivering():
        await waiting.take(say("do both"))
        await waiting.asked(2)
        approval, question = [message for message in waiting.posted if message.blocks]
        await waiting.click("approve", approval)
        await waiting.outgoing.until(lambda: "approved" in shown(approval))
        between = (await waiting.statuses(), len(buttons(question)))
        await waiting.click("0", question)
        await waiting.until_delivered()

    assert between == (["waiting"], 2)
    assert texts(waiting) == ["Both."]
    assert "answered" in shown(question)


async def test_a_turn_that_waits_twice_shows_no_text_twice(waiting: WaitingStage) -> None:
    again = Call((replace(DELETES, id="call_9"),), text="Once more.")
    waiting.turns.model.script(Call((DELETES,), text="First."), again, Say("The end."))
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        await waiting.click("approve", await waiting.asked())
        await waiting.click("approve", await waiting.asked(2))
        await waiting.until_delivered()

    assert texts(waiting) == ["First.", "Once more.", "The end."]
    assert len(waiting.deleted) == 2


async def test_a_question_whose_post_was_cut_is_not_asked_twice(waiting: WaitingStage) -> None:
    waiting.turns.model.script(Call((DELETES,)), Say("Gone."))
    waiting.outgoing.double.rules.fail("chat.postMessage", Failure(drops=True, acts=True))
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        await waiting.outgoing.in_time(lambda: bool(waiting.outgoing.double.workspace.called("conversations.replies")))
        message = await waiting.asked()
        await waiting.click("approve", message)
        await waiting.until_delivered()

    assert len([one for one in waiting.posted if one.blocks]) == 1
    assert "approved" in shown(message)


KNOWN = "01900000-0000-7000-8000-0000000000aa"


@pytest.mark.parametrize(
    "changes",
    [
        {"value": ""},
        {"value": f"{KNOWN}:-1:other"},
        {"value": f"{KNOWN}:1:approve"},
        {"value": f"{'-' * 36}:-1:approve"},
        {"value": "\x00"},
        {"user": "U\x00"},
        {"channel": "C" * 65},
        {"thread_ts": "1.1\x00"},
    ],
)
def test_a_click_on_none_of_our_buttons_is_ignored(changes: dict[str, str]) -> None:
    given = {"value": f"{KNOWN}:-1:approve", "user": ANNA, "channel": "C0GENERAL", "ts": "1.1"}

    assert read_click(click(**given), IDENTITY) is not None
    assert read_click(click(**given | changes), IDENTITY) is None


async def test_questions_of_a_tools_server_are_answered_in_the_thread(waiting: WaitingStage) -> None:
    waiting.turns.dependencies = replace(
        waiting.turns.dependencies, tool_servers=shop(questions=2), agents=AgentRegistry([BUYS])
    )
    waiting.turns.model.script(Call((BUY,)), Say("They are yours."))
    async with waiting.delivering():
        said = await waiting.take(say("shoes"))
        for number, text in enumerate(("huge", "42", "43"), start=1):
            await waiting.asked(number)
            await waiting.take(say(text, thread_ts=said.ts))
        await waiting.until_delivered()

    asked = [shown(message) for message in waiting.posted if message.blocks]
    assert "The server shop asks, for its tool shop__buy" in asked[0]
    assert "The answer does not fit the question: 'size' must be of the type integer" in asked[1]
    assert [f"<@{ANNA}> answered" in one for one in asked] == [True] * 3
    assert ["huge" in asked[0], "42" in asked[1], "43" in asked[2]] == [True] * 3
    assert texts(waiting) == ["They are yours."]


async def test_a_question_of_an_agents_graph_is_answered_in_the_thread(waiting: WaitingStage) -> None:
    asking = replace(graph_agent("asking"), name=BUYS.name)
    waiting.turns.dependencies = replace(waiting.turns.dependencies, agents=AgentRegistry([asking]))
    waiting.turns.model.script(Say("It has a harbour."))
    async with waiting.delivering():
        said = await waiting.take(say("Tell me of a city."))
        await waiting.asked()
        await waiting.take(say("Kiel", thread_ts=said.ts))
        await waiting.until_delivered()

    (asked,) = [message for message in waiting.posted if message.blocks]
    assert "Which city?" in shown(asked)
    assert texts(waiting) == ["It has a harbour."]
    assert "Tell of ['Kiel']." in str(waiting.turns.model.requests[-1].prompt)


async def test_a_question_is_told_as_answered_also_once_the_next_one_waits(waiting: WaitingStage) -> None:
    waiting.turns.dependencies = replace(
        waiting.turns.dependencies, tool_servers=shop(questions=2), agents=AgentRegistry([BUYS])
    )
    waiting.turns.model.script(Call((BUY,)))

    async def asks_again() -> bool:
        return any(":2" in str(wait) for (wait,) in await waiting.outgoing.rows("select wait::text from runs"))

    async with waiting.delivering():
        said = await waiting.take(say("shoes"))
        await waiting.asked()
    await waiting.take(say("42", thread_ts=said.ts))
    await until_found(asks_again)
    async with waiting.delivering():
        await waiting.asked(2)

    first, _ = [shown(message) for message in waiting.posted if message.blocks]
    assert f"<@{ANNA}> answered" in first
    assert "42" in first


async def test_questions_of_several_servers_are_asked_one_after_another(waiting: WaitingStage) -> None:
    waiting.turns.dependencies = replace(waiting.turns.dependencies, tool_servers=shop(), agents=AgentRegistry([BUYS]))
    waiting.turns.model.script(Call((BUY, BUY_MORE)), Say("Both are yours."))
    async with waiting.delivering():
        said = await waiting.take(say("shoes"))
        await waiting.asked()
        first = len([message for message in waiting.posted if message.blocks])
        await waiting.take(say("42", thread_ts=said.ts))
        await waiting.asked(2)
        await waiting.take(say("43", thread_ts=said.ts))
        await waiting.until_delivered()

    asked = [shown(message) for message in waiting.posted if message.blocks]
    assert (first, len(asked)) == (1, 2)
    assert ["42" in asked[0], "43" in asked[1]] == [True, True]
    assert texts(waiting) == ["Both are yours."]
