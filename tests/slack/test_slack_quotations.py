"""Questions in Slack, in whole turns: what they get quoted was said in the same thread, and citations lead there."""

import json
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from fakes.conversations import Conversation
from fakes.scripted_model import Call, Say
from fakes.scripted_turns import REPORT
from fakes.slack_delivery import IDENTITY, DeliveryStage, PlayedTurn
from fakes.slack_double import TEAM, Failure, Person, Said, say
from fakes.stage import Stage, make_tool_box, open_stage, with_context
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import RecallReach
from throughline.context.explain_context import FiringGauge, NextAction
from throughline.context.policy import Recall
from throughline.domain.basic_types import SessionId
from throughline.domain.events import HistoryQuoted
from throughline.domain.message import NewMessage, Role, Source, ToolCall, text_of
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import Run, RunStatus
from throughline.llm.counters import CharsCounter
from throughline.slack.commands import CELLS, draw, named, show_context
from throughline.slack.maintenance import Maintenance
from throughline.slack.store.people import SlackId
from throughline.tools.recall import make_recall_tools
from throughline.turn.take_turn import take_turn
from throughline.wire.gauges import Gauge

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


def test_bars_are_never_empty_above_nothing_and_full_only_at_the_limit() -> None:
    assert draw(Gauge("N", 0, 30)) == "N          [" + "░" * CELLS + "] 0 / 30 0%"
    assert draw(Gauge("N", 1, 1_000)).count("█") == 1
    assert draw(Gauge("N", 999, 1_000)).count("█") == CELLS - 1
    assert draw(Gauge("N", 1_000, 1_000)).count("█") == CELLS
    assert draw(Gauge("K", 5, None)).endswith("5 / off")
    assert "│" in draw(Gauge("window", 100, 1_000, mark=800, is_firing=True))


def test_what_happens_next_is_told() -> None:
    firing = show_context(replace(REPORT, next_action=NextAction.COMPACT, next_trigger=FiringGauge.WINDOW), "")

    assert "⚡" in str(firing.blocks)
    assert ":zap: The next message triggers a compaction" in str(firing.blocks)
    assert "triggers nothing" in str(show_context(REPORT, "").blocks)


def test_a_conversation_is_named_by_its_first_words_and_they_neither_ring_nor_format() -> None:
    assert named("Plans for the week") == '"Plans for the week"'
    assert named("<!channel> & `rm`") == "\"&lt;!channel&gt; &amp; 'rm'\""
    assert named("two\nlines \x00") == '"two lines \ufffd"'
    assert len(named("word " * 20)) == len('""') + 40
    assert named("") == "a conversation without a title"


CHANNEL, THREAD = "D0ANNA001", "1700000001.000001"
WRITES = ("chat.startStream", "chat.appendStream")
LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
CITED_QUESTION = f"https://double.slack.com/archives/{CHANNEL}/p1700000001000001"


async def ask(outgoing: DeliveryStage, text: str, ts: str) -> PlayedTurn:
    """Ask in the thread; the question is stored as its turn would store it."""
    turn = await outgoing.ask(said=say(text, ts=ts, channel=CHANNEL, thread_ts=THREAD if ts != THREAD else ""))
    message = NewMessage(Role.USER, text, Source.SLACK)
    await outgoing.database.messages.append_message(turn.claimed.lease, "user", message)
    return turn


async def answered_once(outgoing: DeliveryStage) -> str:
    """Have a first question answered; return the address of the answer."""
    turn = await ask(outgoing, "the harbour", THREAD)
    await turn.finish("It is red.")
    await outgoing.deliver()
    ts = outgoing.posted[0].ts.replace(".", "")
    return f"https://double.slack.com/archives/{CHANNEL}/p{ts}?thread_ts={THREAD}&cid={CHANNEL}"


def has_written(outgoing: DeliveryStage, before: int, times: int) -> bool:
    """Whether more than so many calls have written text, behind the first calls."""
    return sum(map(outgoing.methods()[before:].count, WRITES)) > times


async def test_valid_citations_of_known_messages_are_links(outgoing: DeliveryStage) -> None:
    first_answer = await answered_once(outgoing)
    turn = await ask(outgoing, "again", "1700000002.000001")

    await turn.finish(
        'You said "the harbour" [#1] and "the sea" [#1], I said [#2]; see [#1-#2], [#9], [#1, #2], `[#1]`, [#4].\n'
        "| a | [#1] |\n|---|---|\n"
    )
    await outgoing.deliver()

    assert outgoing.texts()[1].split("\n")[0] == (
        f'You said "the harbour" [#1]({CITED_QUESTION}) and "the sea" [#1], I said [#2]({first_answer}); '
        f"see [#1-#2]({CITED_QUESTION}), [#9], [#1, #2], `[#1]`, [#4]."
    )
    assert "https" not in outgoing.texts()[1].partition("\n")[2]


async def test_an_answer_with_links_grows_without_being_written_again(outgoing: DeliveryStage) -> None:
    first_answer = await answered_once(outgoing)
    turn, written = await ask(outgoing, "again", "1700000002.000001"), len(outgoing.methods())
    pieces = [f"{LINE}You said [#", f"1].\n{LINE}", f"I said [#2].\n\n{LINE}A ` tick [#1].\n"]
    pieces += ["Another ` tick.\n\nSee [#1", "] and [#9]."]
    sender = await outgoing.start()
    for number, piece in enumerate(pieces):
        await turn.say(piece)
        if number < 3:
            await outgoing.in_time(partial(has_written, outgoing, written, number))
    await turn.finish("".join(pieces))
    await sender

    assert outgoing.texts()[1] == (
        f"{LINE}You said [#1]({CITED_QUESTION}).\n{LINE}I said [#2]({first_answer}).\n\n{LINE}"
        f"A ` tick [#1].\nAnother ` tick.\n\nSee [#1]({CITED_QUESTION}) and [#9]."
    )
    assert "chat.update" not in outgoing.methods()
    assert outgoing.methods().count("chat.startStream") == 1


async def test_a_message_that_is_not_in_the_channel_is_no_link(outgoing: DeliveryStage) -> None:
    await answered_once(outgoing)
    await outgoing.rows("update slack_deliveries set channel_id = 'D0ELSEWHERE'")
    turn = await ask(outgoing, "again", "1700000002.000001")
    await turn.finish("See [#1] and [#3].")

    await outgoing.deliver()

    asked_again = f"https://double.slack.com/archives/{CHANNEL}/p1700000002000001?thread_ts={THREAD}&cid={CHANNEL}"
    assert outgoing.texts()[1] == f"See [#1] and [#3]({asked_again})."


async def test_without_the_address_of_the_workspace_there_are_no_links(outgoing: DeliveryStage) -> None:
    outgoing.services = replace(outgoing.services, identity=replace(outgoing.services.identity, url=""))
    turn = await ask(outgoing, "the harbour", THREAD)
    await turn.finish("See [#1].")

    await outgoing.deliver()

    assert outgoing.texts() == ["See [#1]."]


THREE = ("U0ANNA001", "U0BERT001", "U0CLARA01")


def maintenance_of(outgoing: DeliveryStage) -> Maintenance:
    return Maintenance(outgoing.slack, outgoing.services.calls, outgoing.clock, IDENTITY, link_by_email=False)


async def have_three_guests(outgoing: DeliveryStage) -> None:
    for user in THREE:
        outgoing.double.workspace.people[user] = Person(user, f"Name of {user}")
        await outgoing.take(say("hello", user=user, channel="D" + user[1:]))


async def named_profiled(outgoing: DeliveryStage) -> list[tuple[object, ...]]:
    return await outgoing.rows("select slack_user_id from slack_users where display_name <> '' order by 1")


async def let_pass(outgoing: DeliveryStage, minutes: int) -> None:
    await outgoing.rows(f"update slack_users set looked_up_at = looked_up_at - interval '{minutes} minutes'")


TEMPORARY = (Failure(status=503), Failure(error="missing_scope"), Failure(error="internal_error"))


@pytest.mark.parametrize("failure", TEMPORARY)
async def test_a_temporary_failure_of_one_profile_stops_no_other_and_is_soon_retried(
    outgoing: DeliveryStage, failure: Failure
) -> None:
    await have_three_guests(outgoing)
    outgoing.double.rules.fail("users.info", failure)
    maintenance = maintenance_of(outgoing)

    await maintenance.run_once()
    at_first = await named_profiled(outgoing)
    await maintenance.run_once()
    at_once = len(outgoing.double.workspace.called("users.info"))
    await let_pass(outgoing, 6)
    await maintenance.run_once()

    assert (len(at_first), at_once) == (2, 3)
    assert await named_profiled(outgoing) == [(user,) for user in THREE]
    assert len(outgoing.double.workspace.called("users.info")) == 4, "who was found is asked for tomorrow"


async def test_a_profile_that_slack_does_not_have_is_asked_for_again_tomorrow(outgoing: DeliveryStage) -> None:
    await have_three_guests(outgoing)
    del outgoing.double.workspace.people["U0ANNA001"]
    maintenance = maintenance_of(outgoing)
    asked = []

    for minutes in (0, 60, 24 * 60):
        await let_pass(outgoing, minutes)
        await maintenance.run_once()
        asked.append(len(outgoing.double.workspace.called("users.info")))

    assert asked == [3, 3, 6]
    assert len(await named_profiled(outgoing)) == 2
