"""Questions in Slack, in whole turns: what they get quoted was said in the same thread, and citations lead there."""

import json
from dataclasses import dataclass, field, replace

import pytest

from fakes.conversations import Conversation
from fakes.scripted_model import Call, Say
from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import TEAM, Said, say
from fakes.stage import Stage, open_stage, with_context
from fakes.tool_box import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import RecallReach
from throughline.context.policy import Recall
from throughline.db.slack.people import SlackId
from throughline.domain.basic_types import SessionId
from throughline.domain.events import HistoryQuoted
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import Run, RunStatus
from throughline.llm.counters import CharsCounter
from throughline.tools.recall import make_recall_tools
from throughline.turn.take_turn import take_turn

AGENT = replace(
    with_context(recall=Recall.AUTO, auto_summarize=False),
    tools=("search_history", "read_history"),
    recall=RecallReach.USER,
)
PEOPLE = ("U0ANNA001", "U0BERT001", "U0CLARA01")
CHANNELS = ("C0GENERAL", "C0BOATS01")
QUESTION = "What was the gate code of the boat yard?"
SMALL_TALK = ("The weather is fine today.", "Lunch is at noon.", "The lift is out of order again.")


@dataclass
class Place:
    """A thread with the code that was said in it, and nowhere else."""

    root: Said
    code: str
    people: tuple[str, ...]
    said: list[Said] = field(default_factory=list)
    session_id: SessionId | None = None


@dataclass
class Team:
    """People who write to the bot, whose turns are played and answered in the double."""

    outgoing: DeliveryStage
    stage: Stage

    async def write(self, said: Said, *steps: Say | Call) -> Run:
        """Play the turn of a message and deliver its answer."""
        turn = await self.outgoing.ask(said=said)
        self.stage.model.script(*steps or (Say("I see."),))
        await take_turn(self.stage.turn_start(turn.claimed))
        await self.outgoing.deliver()
        run = await self.outgoing.database.runs.get_run(turn.claimed.run.owner_id, turn.claimed.run.id)
        assert run.status is RunStatus.SUCCEEDED
        return run

    async def fill(self, place: Place) -> None:
        """Let one person say the code and the others small talk, and a summary cover it all."""
        code = replace(place.root, text=f"The gate code of the boat yard is {place.code}.")
        talk = [self.reply(place, text, place.people[at % len(place.people)]) for at, text in enumerate(SMALL_TALK, 1)]
        place.said = [code, *talk]
        *_, run = [await self.write(said) for said in place.said]
        place.session_id = run.session_id
        database = self.outgoing.database
        session = await database.sessions.get(run.owner_id, run.session_id)
        conversation = Conversation(database, run.owner_id, session)
        await conversation.adopt((await conversation.messages())[-1], "They talked about all kinds of things.")
        await database.history.index_session(run.session_id)

    def reply(self, place: Place, text: str, user: str) -> Said:
        return say(text, channel=place.root.channel, user=user, thread_ts=place.root.ts)

    @property
    def request(self) -> ModelRequest:
        return self.stage.model.requests[-1]


@pytest.fixture
async def team(outgoing: DeliveryStage) -> Team:
    """Three people who are linked to users of the service."""
    database, links = outgoing.database, outgoing.slack.links
    for number, user in enumerate(PEOPLE):
        owner = await database.users.get_or_create(f"user-{number}")
        await links.link_by_code(SlackId(TEAM, user), await links.new_code(owner))
    tools = make_recall_tools(database.history, CharsCounter().count)
    stage = await open_stage(database, agent=AGENT, tools=make_tool_box((), HANG_SECONDS, further=tools))
    return Team(outgoing, stage)


def places() -> list[Place]:
    """Two threads in each channel, all people in them, and two of each person's own."""
    rooms = [(channel, PEOPLE) for channel in CHANNELS] + [(f"D{user[1:]}", (user,)) for user in PEOPLE]
    threads = [(channel, people) for channel, people in rooms for _ in range(2)]
    return [place_of(channel, f"{4_000 + at}", people) for at, (channel, people) in enumerate(threads)]


def place_of(channel: str, code: str, people: tuple[str, ...]) -> Place:
    return Place(say("", channel=channel, user=people[0]), code, people)


def shown(request: ModelRequest) -> str:
    return "\n".join([request.prompt.system, *(text_of(message.content) for message in request.prompt.messages)])


@pytest.mark.slow
async def test_a_question_gets_quoted_what_was_said_in_its_own_thread_alone(team: Team) -> None:
    everywhere = places()
    for place in everywhere:
        await team.fill(place)
    seen: dict[str, set[str]] = {}

    for place in everywhere:
        run = await team.write(team.reply(place, QUESTION, place.people[-1]))
        assert any(isinstance(event.event, HistoryQuoted) for event in await team.stage.events(run))
        seen[place.code] = {other.code for other in everywhere if other.code in shown(team.request)}

    assert len({place.session_id for place in everywhere}) == len(everywhere) == 10
    assert seen == {place.code: {place.code} for place in everywhere}


async def test_recall_tools_in_a_shared_thread_reach_no_other_session(team: Team) -> None:
    shared, beside = (place_of("C0GENERAL", code, PEOPLE) for code in ("4417", "5528"))
    elsewhere = [beside, place_of("C0BOATS01", "6639", PEOPLE), place_of("D0BERT001", "7741", PEOPLE[1:2])]
    for place in (shared, *elsewhere):
        await team.fill(place)
    asked: list[tuple[str, dict[str, object]]] = [("search_history", {"query": "gate code boat yard"})]
    for place in elsewhere:
        asked += [("read_history", {"from_position": 1, "to_position": 8, "session": str(place.session_id)})]
    calls = tuple(ToolCall(f"c{at}", name, json.dumps(arguments)) for at, (name, arguments) in enumerate(asked))

    await team.write(team.reply(shared, QUESTION, PEOPLE[1]), Call(calls), Say("I see."))

    results = [text_of(message.content) for message in team.request.prompt.messages if message.role is Role.TOOL]
    assert len(results) == len(calls)
    assert shared.code in results[0]
    assert not any(place.code in shown(team.request) for place in elsewhere)


async def test_the_citation_of_a_quotation_leads_to_the_message_in_the_thread(team: Team) -> None:
    other, place = (place_of("C0GENERAL", code, PEOPLE) for code in ("4417", "5528"))
    for one in (other, place):
        await team.fill(one)
    answer = Say('Anna said "5528" [#1]. At noon "Lunch is" [#5]. Not "4417" [#1], nor [#99].')

    await team.write(team.reply(place, QUESTION, PEOPLE[2]), answer)

    assert "[#1, user user-0, " in text_of(team.request.prompt.messages[-2].content)
    root, lunch = (said.ts.replace(".", "") for said in (place.said[0], place.said[2]))
    channel = "https://double.slack.com/archives/C0GENERAL"
    assert team.outgoing.posted[-1].thread_ts == place.root.ts
    assert team.outgoing.texts()[-1] == (
        f'Anna said "5528" [#1]({channel}/p{root}). At noon "Lunch is" '
        f'[#5]({channel}/p{lunch}?thread_ts={place.root.ts}&cid=C0GENERAL). Not "4417" [#1], nor [#99].'
    )
