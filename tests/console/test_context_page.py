"""The page on a session's context, as a browser gets it."""

import re
from dataclasses import replace
from importlib.resources import files
from uuid import UUID

import httpx
import pytest

from context.strategies import Said, conversation_input
from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from fakes.conversations import Conversation
from throughline.api.front_end import API
from throughline.console.context_words import GAUGES, NEXT_STEPS, ONLY_FITTED, WORDS
from throughline.console.front_end import CONSOLE
from throughline.console.page import GERMAN, PACKAGE
from throughline.context.explain_context import FiringGauge, NextAction
from throughline.context.fit_prompt import REASONS, MessageVariant
from throughline.context.preview import Preview, plan_next_call, preview_call
from throughline.context.prompt_parts import PromptPartKind
from throughline.context.quoted_history import Quotation
from throughline.context.summaries.kept_facts_text import FACTS_HEADING
from throughline.context.view.view_state import ViewState
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import PromptCannotFit
from throughline.domain.events import CompactionFinished, NewEvent
from throughline.domain.keys import Scope
from throughline.domain.message import Role, ToolCall
from throughline.domain.summary import CompactionOutcome
from throughline.http.app import create_app

SUMMARY = f"[#1-#4]\nThey spoke of <b>ports</b>.\n\n{FACTS_HEADING}\nValues:\n- The port is 5433. [#2]"


def make_plan(said: list[Said], *, policy_state: ViewState | None = None) -> Preview:
    given = conversation_input(said, summary=SUMMARY, cursor=4, system_prompt="Be a secret agent.")
    given = given if policy_state is None else replace(given, view_state=policy_state)
    earlier = replace(given.history[0], position=2, content="The port is 5433.")
    return preview_call(plan_next_call(given), [Quotation(earlier, "The port is 5433.", 1.0)])


def with_stub() -> Preview:
    call = ToolCall("c1", "search", "{}")
    said = [
        Said(Role.USER, "<script>alert(1)</script>"),
        Said(Role.ASSISTANT, "", (call,)),
        Said(Role.TOOL, "word " * 400, tool_call_id="c1"),
        Said(Role.ASSISTANT, "Found."),
    ]
    return make_plan(said, policy_state=ViewState(pruned_through_position=7, summary_position=4))


def rows_of(table: str) -> list[list[str]]:
    """The cells of each row, without their tags."""
    cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", table))
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells]


def page_of(path: str) -> str:
    return f"/console/{path.removeprefix('/v1/')}/context"


async def conversation_at(stage: ApiStage, path: str) -> Conversation:
    owner_id = await stage.database.users.get_or_create("local")
    session = await stage.database.sessions.get(owner_id, SessionId(UUID(path.rpartition("/")[2])))
    return Conversation(stage.database, owner_id, session)


async def test_the_page_shows_the_parts_of_the_next_prompt_and_their_text(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await open_session(client)
    stage.pins.plan = plan = with_stub()

    shown = await client.get(page_of(path))
    text = shown.text
    legend = rows_of(text[text.index("<table>") : text.index("</table>")])
    sizes = {row[0].rpartition("</svg>")[2].strip(): int(re.sub(r"\D", "", row[1])) for row in legend[1:]}
    beside = ("Free", "Kept free for the answer")

    assert shown.status_code == 200
    parts = {name: tokens for name, tokens in sizes.items() if ":" not in name and name not in beside}
    assert sum(parts.values()) == plan.tokens
    assert sum(parts.values()) + sum(sizes[name] for name in beside) == plan.window
    assert 'aria-current="page">Context</a>' in text
    assert "The port is 5433. [#2]" in text
    assert "[Output of" in text
    assert "an old tool output, replaced by a short note" in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "<b>ports" not in text
    for name in re.findall(r'context#part-(\w+)"', text):
        assert f'id="part-{name}"' in text


async def test_operators_alone_read_the_system_prompt(database: Database) -> None:
    stage = set_stage(database, KEYED).with_front_ends(KEYED, CONSOLE)
    stage.pins.plan = with_stub()
    user, operator = await stage.key("ada"), await stage.key("ada", Scope.READ, Scope.OPERATE)
    async with stage.client(key=user) as client:
        path = page_of(await open_session(client))
        hidden = (await client.get(path)).text
    async with stage.client(key=operator) as client:
        shown = (await client.get(path)).text

    assert "secret agent" not in hidden
    assert "Operators alone" in hidden
    assert "secret agent" in shown


async def test_another_users_context_is_not_found(database: Database) -> None:
    stage = set_stage(database, KEYED).with_front_ends(KEYED, CONSOLE)
    async with stage.client(key=await stage.key("ada")) as client:
        path = page_of(await open_session(client))
    async with stage.client(key=await stage.key("ben")) as client:
        found = [await client.get(f"{path}{below}") for below in ("", "/preview?content=hi", "?find=1")]
    async with stage.client() as client:
        unknown = await client.get(path)

    assert [answer.status_code for answer in found] == [404] * 3
    assert unknown.status_code == 303


async def test_an_access_token_serves_the_context_of_its_session_alone(database: Database) -> None:
    stage = set_stage(database, KEYED).with_front_ends(KEYED, CONSOLE)
    async with stage.client(key=await stage.key("ada")) as client:
        own, other = await open_session(client), await open_session(client)
        token = (await client.post("/v1/tokens", json={"session_ids": [own.rpartition("/")[2]]})).json()["token"]
    async with stage.client(key=token) as client:
        shown = [await client.get(f"{page_of(own)}{below}") for below in ("", "/preview", "?find=1")]
        refused = await client.get(page_of(other))

    assert [answer.status_code for answer in shown] == [200] * 3
    assert other.rpartition("/")[2] not in shown[0].text
    assert refused.status_code == 404


async def test_a_message_that_is_tried_shows_what_it_would_change(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = page_of(await open_session(client))

    shown = await client.get(f"{path}/preview", params={"content": "What is the port?"})
    empty = await client.get(f"{path}/preview")
    too_long = await client.get(f"{path}/preview", params={"content": "x" * 4_001})

    assert stage.pins.previewed == ["What is the port?", None]
    assert "A summary would be written first." in shown.text
    assert "The prompt is above the threshold." in shown.text
    assert "old tool outputs were replaced by short notes" in shown.text
    assert "A summary would cover #1 to #2." in shown.text
    assert rows_of(shown.text)[-1] == ["#1 User", "in the summary", "the summary stands for it", "0"]
    assert "<html" not in shown.text
    assert empty.status_code == 200
    assert too_long.status_code == 422


async def test_a_message_that_left_the_prompt_says_where_it_is(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    stored = await (await conversation_at(stage, path)).say("hello", "The port is 5433.", "who", "ok", "later")
    stage.pins.plan = make_plan([Said(Role.USER, "later")])

    async def found_by(words: str) -> str:
        """Return what the page says between the box for the words and the next heading."""
        text = (await client.get(page_of(path), params={"find": words})).text
        return text.partition('<div id="found"')[2].partition("<h2>")[0]

    by_words, by_number, behind = await found_by("port"), await found_by("#3"), await found_by("5")
    none = [await found_by(words) for words in ("0", "99999999999", "nowhere")]
    refused = await found_by("before:never")
    unasked = await found_by(" ")

    assert "in the summary" in by_words
    assert ">The port is 5433. [#2]<" in by_words
    assert "What follows is a record" not in by_words
    assert f"/messages/{stored[1].id}/pin" in by_words
    assert by_number.index("[#1-#4]") > 0
    assert "5433" not in by_number
    assert "in the prompt" in behind
    assert all("No message was found." in text for text in none)
    assert 'role="alert"' in refused
    assert "No message" not in refused + unasked


async def test_the_address_names_what_was_looked_for(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    await (await conversation_at(stage, path)).say("The port is 5433.", "ok")

    text = (await client.get(page_of(path), params={"find": 'a "port"'})).text
    session = path.removeprefix("/v1/")

    assert f'action="{session}/context#found" method="get"' in text
    assert 'value="a &#34;port&#34;"' in text
    assert f'href="{session}/context?find=a+%22port%22#main"' in text


async def test_a_summary_has_the_number_of_its_version_and_what_it_takes_in_the_prompt(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    stored = await conversation.say("One", "Two", "Three", "Four")
    await conversation.adopt(stored[3], "They spoke of ports.")
    stage.pins.plan = plan = make_plan([Said(Role.USER, "later")])

    text = re.sub(r"<[^>]+>", "", (await client.get(page_of(path))).text)
    version = (await client.get(f"{path}/summaries/1")).json()
    in_prompt = sum(part.tokens for part in plan.parts if part.kind in {PromptPartKind.SUMMARY, PromptPartKind.FACTS})

    assert f"Version 1 · {version['token_count']} tokens ({in_prompt} in the prompt" in text


async def test_a_message_that_no_line_of_the_summary_names_says_so(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    await (await conversation_at(stage, path)).say("The port is 5433.", "ok")
    given = conversation_input([Said(Role.USER, "Hi")], summary="They met.", cursor=2)
    stage.pins.plan = preview_call(plan_next_call(given))

    found = (await client.get(page_of(path), params={"find": "1"})).text

    assert "No line of the summary cites this message" in found


async def test_the_gauge_that_fires_next_is_named(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = page_of(await open_session(client))
    stage.pins.report = replace(
        stage.pins.report, next_action=NextAction.PREPARE, next_trigger=FiringGauge.MESSAGES, messages_since_summary=29
    )

    text = (await client.get(path)).text

    assert NEXT_STEPS[NextAction.PREPARE] in text
    assert ["Messages since the summary triggers the next step", "29", "30", ""] in rows_of(text)


async def test_the_compactions_of_a_session_are_listed_with_their_sizes(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    finished = CompactionFinished("threshold", CompactionOutcome.ADOPTED, "<i>", ("pruned",), 6_900, 2_100, 40)
    claimed = await conversation.start()
    await stage.database.events.append_events(claimed.lease, [NewEvent(1, finished)])
    await conversation.end(claimed.lease)

    text = (await client.get(page_of(path))).text
    row = rows_of(text)[-1]

    assert row[1] == "a summary came into use: old tool outputs were replaced by short notes"
    assert row[2:5] == ["6\u202f900", "2\u202f100", "#40"]
    assert row[5] == "The prompt is above the threshold. &lt;i&gt;"


async def test_a_prompt_that_cannot_be_made_is_told_in_the_page(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = page_of(await open_session(client))

    async def refuse(*_: object) -> Preview:
        raise PromptCannotFit("too small a window")

    services = replace(stage.services, preview_context=refuse)
    stage.app = create_app(services, LOCAL, (API, CONSOLE))
    async with stage.client() as broken:
        answers = [await broken.get(f"{path}{below}") for below in ("", "/preview", "?find=1")]

    assert [answer.status_code for answer in answers] == [200] * 3
    assert all("too small a window" in answer.text for answer in answers)


async def test_the_page_is_in_german_for_those_who_prefer_it(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = page_of(await open_session(client))
    stage.pins.plan = with_stub()

    text = (await client.get(path, headers={"Accept-Language": "de"})).text

    assert "Sätze, die die Zusammenfassung im Wortlaut behält" in text
    assert GERMAN[REASONS[MessageVariant.PRUNED]] in text


def test_every_text_of_the_page_has_a_german_line() -> None:
    templates = (each for each in files(PACKAGE).joinpath("templates").iterdir() if each.name.startswith("context"))
    texts = {text for each in templates for _, text in re.findall(r"""_\((["'])(.+?)\1""", each.read_text("utf-8"))}
    words = {text for known in WORDS.values() for text in known.values()}  # type: ignore[attr-defined]  # mappings

    assert texts
    pinned = {"pinned: always shown", ONLY_FITTED}
    assert {*texts, *words, *GAUGES, *NEXT_STEPS.values(), *REASONS.values(), *pinned} <= GERMAN.keys()


@pytest.mark.parametrize("below", ["", "/preview", "?find=1"])
async def test_what_is_no_id_of_a_session_is_not_found(client: httpx.AsyncClient, below: str) -> None:
    assert (await client.get(f"/console/sessions/nonsense/context{below}")).status_code == 404
