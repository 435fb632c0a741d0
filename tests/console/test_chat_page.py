"""The page of a session: its messages as HTML that can run nothing, in parts, and what waits for a person."""

import re
from uuid import UUID

import httpx
import pytest

from console.chats import open_chat
from fakes.api_stage import LOCAL, ApiStage, set_stage
from throughline.console.chat import MOST_CHARACTERS, SHOWN
from throughline.console.front_end import CONSOLE
from throughline.console.markdown import html_of
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import AgentInvalid
from throughline.domain.keys import Scope
from throughline.http.call import SharedSessions

SESSION = "01900000-0000-7000-8000-000000000000"
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "![x](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    "![x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    '[x](https://e.example "onmouseover=alert(1) x=\\"")',
    "[x]: javascript:alert(1)\n\n[x]",
    "<a href='javascript:alert(1)'>x</a>",
    "<iframe src=//evil.example></iframe>",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example>",
    "<form action=//evil.example><input></form>",
    "<math><mtext></table></math><img src onerror=alert(1)>",
    "`<script>alert(1)</script>`",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\n```',
    "|<script>|\n|---|\n|<img src=x onerror=alert(1)>|",
    "> <script>alert(1)</script>",
    "# <script>alert(1)</script>",
    "[#1](javascript:alert(1))",
    '[#1 in session "><script>]',
    '<https://evil.example/"onclick=alert(1)>',
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202eevil\u202c",
    "{{ 7*7 }} {% if 1 %}",
    "</textarea></template></details><script>alert(1)</script>",
    "<li hx-get=//evil.example hx-trigger=load>",
    "<div data-rest=DELETE data-url=../v1/sessions>",
]
TAGS = frozenset({
    *("p", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "code", "blockquote", "hr", "br", "em"),
    *("strong", "s", "a", "img", "div", "table", "thead", "tbody", "tr", "th", "td"),
})
OF_TABLES = ("role", "tabindex", "aria-labelledby")
SAFE_ADDRESS = re.compile(r"^(?:https?:|mailto:|data:image/(?:gif|png|jpeg|webp);|sessions/|[^:]*$)")


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_markdown_makes_only_harmless_html(text: str) -> None:
    html = str(await html_of(text, SESSION))

    assert {tag.lower() for tag in re.findall(r"<([a-zA-Z][a-zA-Z0-9]*)", html)} <= TAGS
    for attributes in re.findall(r"<[a-z0-9]+((?:\s+[^<>]*)?)>", html):
        names = re.findall(r'([\w-]+)="[^"]*"', attributes)
        assert set(names) <= {"href", "title", "class", "target", "rel", "src", "alt", "start", *OF_TABLES}, html
    addresses = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert all(SAFE_ADDRESS.match(address) for address in addresses)
    assert not re.search(r'<img src="(?!data:)', html)


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_texts_of_users_and_titles_run_nothing(stage: ApiStage, text: str) -> None:
    async with stage.client() as client:
        session_id = await open_chat(client)
        await client.patch(f"/v1/sessions/{session_id}", json={"title": text[:200]})
        await client.post(f"/v1/sessions/{session_id}/messages", json={"content": text})
        page = await client.get(f"/console/sessions/{session_id}")

    assert page.status_code == 200
    assert not re.search(r"<(?:svg|iframe|img src=x|math|script>)", page.text)
    assert "alert(1)</script>" not in page.text


async def test_citations_lead_to_their_messages() -> None:
    html = str(await html_of(f"It is 8080 [#12, #14-#16 in session {SESSION}]. No: a[#3]b, `[#4]`", "here"))

    assert '<a href="sessions/here?at=12" class="citation">#12</a>' in html
    assert f'href="sessions/{SESSION}?at=14"' in html
    assert "at=3" not in html
    assert "at=4" not in html


@pytest.mark.parametrize(
    "text",
    [
        "|" + "a|" * 600 + "\n|" + "-|" * 600 + "\n" + "|\n" * 1_800,
        "![" * 9_000,
        "[" * 19_000,
        ">" * 200 + "a\n" + "b\n" * 9_000,
        "> " * 9_000,
        "*a" * 9_000,
        "x" * 20_001,
    ],
)
async def test_a_text_that_would_take_long_is_shown_as_it_is(text: str) -> None:
    html = str(await html_of(text, SESSION))

    assert len(html) < 20 * len(text)
    assert html.startswith('<div class="plain">') or len(text) <= 20_000


async def test_the_number_0_is_no_citation() -> None:
    assert "href" not in str(await html_of("See [#0].", SESSION))


async def test_a_wrong_position_is_told_as_a_page(client: httpx.AsyncClient) -> None:
    refused = await client.get(f"/console/sessions/{await open_chat(client)}?at=0")

    assert refused.status_code == 422
    assert "<h1>" in refused.text


async def test_a_picture_from_elsewhere_is_a_link_and_one_of_the_text_is_shown() -> None:
    html = str(await html_of("![a](https://e.example/a.png) ![b](data:image/png;base64,AAAA)", SESSION))

    assert '<a href="https://e.example/a.png" target="_blank" rel="noopener noreferrer nofollow">a</a>' in html
    assert '<img src="data:image/png;base64,AAAA" alt="b">' in html


async def test_a_long_text_is_shown_in_part_and_whole_on_request(stage: ApiStage) -> None:
    async with stage.client() as client:
        session_id = await open_chat(client)
        await client.post(f"/v1/sessions/{session_id}/messages", json={"content": "x" * (MOST_CHARACTERS + 7)})
        page = await client.get(f"/console/sessions/{session_id}")
        whole = await client.get(f"/console/sessions/{session_id}/messages/1")

    assert "7 more characters" in page.text
    assert "x" * (MOST_CHARACTERS + 1) not in page.text
    assert "x" * (MOST_CHARACTERS + 7) in whole.text


async def test_a_picture_in_a_tools_result_is_shown(stage: ApiStage) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "draw", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    said = [
        {"role": "user", "content": "draw"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "text", "text": "drawn"}, picture], "tool_call_id": "c"},
    ]
    async with stage.client() as client:
        made = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": said})
        page = await client.get(f"/console/sessions/{made.json()['id']}")

    assert '<img src="data:image/png;base64,AAAA"' in page.text


async def test_the_history_comes_in_parts_from_its_end_or_around_a_message(stage: ApiStage) -> None:
    async with stage.client() as client:
        said = [{"role": "user", "content": f"message {at}"} for at in range(1, 101)]
        made = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": said})
        session_id = made.json()["id"]
        end = await client.get(f"/console/sessions/{session_id}")
        middle = await client.get(f"/console/sessions/{session_id}?at=50")
        earlier = await client.get(f"/console/sessions/{session_id}/messages?before={100 - SHOWN + 1}")

    assert positions(end) == list(range(100 - SHOWN + 1, 101))
    assert positions(middle) == list(range(38, 38 + SHOWN))
    assert 'class="message user sought" id="m50"' in middle.text
    assert positions(earlier)[-1] == 100 - SHOWN
    assert f"before={100 - SHOWN + 1}" in end.text
    assert {"before=38", f"after={37 + SHOWN}"} <= set(re.findall(r"(?:before|after)=\d+", middle.text))


def positions(page: httpx.Response) -> list[int]:
    return [int(found) for found in re.findall(r'id="m(\d+)"', page.text)]


async def test_another_users_session_is_not_there(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("anna")) as anna:
        session_id = await open_chat(anna)
    async with keyed.client(key=await keyed.key("ben", Scope.READ, Scope.OPERATE)) as ben:
        for address in ("", "/messages", "/messages/1", "/updates"):
            assert (await ben.get(f"/console/sessions/{session_id}{address}")).status_code == 404, address
        assert str(UUID(session_id)) not in (await ben.get("/console/sessions")).text


async def test_the_list_of_sessions_is_searched_by_title(client: httpx.AsyncClient) -> None:
    for title in ("harbour", "lighthouse"):
        await client.post("/v1/sessions", json={"agent": "assistant", "title": title})

    rows = await client.get("/console/sessions?q=arb", headers={"HX-Request": "true"})

    assert "harbour" in rows.text
    assert "lighthouse" not in rows.text
    assert "<html" not in rows.text


async def test_who_takes_part_in_a_session_sees_no_other_titles_of_its_owner(
    keyed: ApiStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keyed.client(key=await keyed.key("anna")) as anna:
        shared = await open_chat(anna)
        await anna.post("/v1/sessions", json={"agent": "assistant", "title": "PRIVATE"})
    owner = await keyed.database.users.get_or_create("anna")

    async def owner_for(*_: object, **__: object) -> UserId:
        return owner

    monkeypatch.setattr(SharedSessions, "owner_for", owner_for)
    async with keyed.client(key=await keyed.key("ben")) as ben:
        addresses = ("", "/context", "/summaries", "/search?q=a")
        pages = [await ben.get(f"/console/sessions/{shared}{address}") for address in addresses]

    assert [page.status_code for page in pages] == [200] * 4
    assert all("PRIVATE" not in page.text for page in pages)


async def test_who_may_only_read_is_offered_no_changes(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("anna")) as anna:
        session_id = await open_chat(anna)
        await anna.post(f"/v1/sessions/{session_id}/messages", json={"content": "hello"})
        whole = await anna.get(f"/console/sessions/{session_id}")
    async with keyed.client(key=await keyed.key("anna", Scope.READ)) as reader:
        page = await reader.get(f"/console/sessions/{session_id}")

    for change in ('id="composer"', "data-rest", 'data-act="edit"'):
        assert change in whole.text
        assert change not in page.text
    assert "hello" in page.text


async def test_an_open_page_asks_for_what_it_does_not_show_yet(stage: ApiStage) -> None:
    async with stage.client() as client:
        said = [{"role": "user", "content": f"message {at}"} for at in range(1, 4)]
        made = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": said})
        updates = f"/console/sessions/{made.json()['id']}/updates"
        new = await client.get(f"{updates}?after=1&gauge=1")
        nothing = await client.get(f"{updates}?after=3&gauge=3")
        in_the_middle = await client.get(f"{updates}?gauge=3")

    assert positions(new) == [2, 3]
    assert '<p id="gauge" class="gauge" data-at="3" title=' in new.text
    assert [positions(nothing), positions(in_the_middle)] == [[], []]
    assert "gauge" not in nothing.text + in_the_middle.text


async def test_the_gauge_of_an_agent_that_cannot_be_used_is_hidden_and_not_counted_again(database: Database) -> None:
    async def refuse(_owner_id: UserId, _session_id: SessionId) -> ContextReport:
        raise AgentInvalid("No model.")

    played = set_stage(database, LOCAL, dependencies={"report_context": refuse})
    async with played.with_front_ends(LOCAL, CONSOLE).client() as client:
        session_id = await open_chat(client)
        page = await client.get(f"/console/sessions/{session_id}")
        updates = await client.get(f"/console/sessions/{session_id}/updates?after=0&gauge=0")

    assert '<p id="gauge" class="gauge" data-at="0" hidden></p>' in page.text
    assert "gauge" not in updates.text


async def test_links_skip_the_messages_for_those_who_use_the_keyboard(client: httpx.AsyncClient) -> None:
    session_id = await open_chat(client)

    page = (await client.get(f"/console/sessions/{session_id}?at=1")).text
    here = f"sessions/{session_id}?at=1"

    assert re.findall(r'class="skip" href="([^"]+)"', page) == [f"{here}#main", f"{here}#text", f"{here}#session-title"]
    assert all(f' id="{name}"' in page for name in ("main", "text", "session-title"))
