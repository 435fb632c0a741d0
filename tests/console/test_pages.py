"""What all pages of the console have in common: where they are, their headers, words, files and errors."""

import ast
import hashlib
import re
from importlib.resources import files

import httpx
import pytest
import yaml

from console.chats import open_chat
from fakes.api_stage import LOCAL, ApiStage
from throughline.assembly.env_file import PROGRAM_SETTINGS
from throughline.assembly.front_ends import routes
from throughline.console.markdown import SCROLL, html_of
from throughline.console.page import GERMAN, PACKAGE, POLICY
from throughline.http.app import create_app

HTML = {"Accept": "text/html"}
HTMX_HASH = "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de"
TEMPLATES = {each.name: each.read_text(encoding="utf-8") for each in files(PACKAGE).joinpath("templates").iterdir()}
FIELD = re.compile(r"\{\w+\}")
TEXT = re.compile(r"""_\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


async def test_the_root_leads_browsers_to_the_console_and_programs_to_the_links(client: httpx.AsyncClient) -> None:
    page, links = await client.get("/", headers=HTML), await client.get("/")

    assert (page.status_code, page.headers["location"]) == (303, "console/sessions")
    assert links.json()["links"]["reference"] == "docs"
    assert (await client.get("/console")).headers["location"] == "console/sessions"


async def test_without_the_console_the_root_is_a_page_of_links(stage: ApiStage) -> None:
    front_ends = routes(PROGRAM_SETTINGS.model_validate({"console": False}))
    app = create_app(stage.services, LOCAL, front_ends)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
        page = await client.get("/", headers=HTML)
        console = await client.get("/console/sessions")

    assert "docs" in page.text
    assert console.status_code == 404


async def test_every_page_forbids_what_is_not_its_own(client: httpx.AsyncClient) -> None:
    session_id = await open_chat(client)

    for address in ("sessions", f"sessions/{session_id}", "sign-in", "sessions/none", f"sessions/{session_id}/updates"):
        response = await client.get(f"/console/{address}")
        assert response.headers["content-security-policy"] == POLICY, address
        assert response.headers["cache-control"] == "no-store", address


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_no_template_has_a_script_or_style_of_its_own(name: str) -> None:
    text = TEMPLATES[name]

    assert not re.search(r"<style|\sstyle=|\son\w+=|hx-on|javascript:|\|\s*safe", text)
    assert all(" src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", text)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_table_can_be_scrolled_by_keyboard(name: str) -> None:
    regions = re.findall(r"""<div class="scroll" role="region" tabindex="0" aria-label="{{ _\('""", TEMPLATES[name])

    assert len(regions) == TEMPLATES[name].count("<table")


async def test_a_table_in_an_answer_can_be_scrolled_by_keyboard(client: httpx.AsyncClient) -> None:
    page = (await client.get("/console/sessions")).text

    assert SCROLL in str(await html_of("a|b\n-|-\n1|2", ""))
    assert 'aria-labelledby="table-word"' in SCROLL
    assert '<span id="table-word" hidden>Table</span>' in page


def test_every_text_has_a_german_one_and_no_other_has() -> None:
    english = {double or single for text in TEMPLATES.values() for double, single in TEXT.findall(text)}

    assert english - GERMAN.keys() == set()
    assert GERMAN.keys() - english - texts_of_python() == set()
    assert all(
        re.findall(r"\{\w+\}", one).sort() == re.findall(r"\{\w+\}", other).sort() for one, other in GERMAN.items()
    )


def texts_of_python() -> set[str]:
    """Return all texts in modules of which some are handed to the templates' words."""
    packages = (
        PACKAGE,
        "throughline.domain",
        "throughline.context",
        "throughline.context.view",
        "throughline.context.compaction",
    )
    modules = [each for package in packages for each in files(package).iterdir() if each.name.endswith(".py")]
    nodes = (node for each in modules for node in ast.walk(ast.parse(each.read_text(encoding="utf-8"))))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize(
    ("asked", "language"), [("de-CH,de;q=0.9,en;q=0.8", "de"), ("en-GB,de;q=0.5", "en"), ("fr", "en"), ("", "en")]
)
async def test_a_page_is_in_the_language_of_the_browser(client: httpx.AsyncClient, asked: str, language: str) -> None:
    page = await client.get("/console/sessions", headers={"Accept-Language": asked})

    assert f'<html lang="{language}">' in page.text
    assert ("Neuer Chat" in page.text) is (language == "de")


async def test_files_are_kept_for_good_under_addresses_that_name_their_content(client: httpx.AsyncClient) -> None:
    page = await client.get("/console/sessions")
    addresses = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)

    assert len(addresses) == 4
    for address in addresses:
        found = await client.get(f"/console/{address}")
        assert "immutable" in found.headers["cache-control"]
        assert hashlib.sha256(found.content).hexdigest().startswith(address.partition("?")[2])
    assert (await client.get("/console/static/none.css")).status_code == 404


def test_htmx_is_the_published_file() -> None:
    content = files(PACKAGE).joinpath("static", "htmx.min.js").read_bytes()

    assert hashlib.sha256(content).hexdigest() == HTMX_HASH
    assert "Zero-Clause BSD" in files(PACKAGE).joinpath("static", "htmx.LICENSE").read_text(encoding="utf-8")


async def test_an_error_is_a_page_with_its_remedy(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/console/sessions/01900000-0000-7000-8000-000000000000")
    no_id = await client.get("/console/sessions/<script>alert(1)</script>")

    assert (unknown.status_code, no_id.status_code) == (404, 404)
    assert "<h1>" in unknown.text
    assert "<script>alert" not in no_id.text


async def test_an_unknown_address_is_told_as_a_page(client: httpx.AsyncClient) -> None:
    for address in ("nothere", "operate/", "sessions/x/y/z"):
        page = await client.get(f"/console/{address}", headers=HTML)
        assert page.status_code == 404, address
        assert "<h1>" in page.text, address


@pytest.mark.parametrize("address", ["sessions/none", "operate", "operate/runs", "costs?days=x"])
async def test_an_error_page_has_the_navigation_of_who_is_signed_in(
    anna: httpx.AsyncClient, keyed: ApiStage, address: str
) -> None:
    page = await anna.get(f"/console/{address}")
    async with keyed.client() as nobody:
        outside = await nobody.get("/console/static/none.css")

    assert page.status_code in {403, 404, 422}
    assert 'action="sign-out"' in page.text
    assert '<a href="costs"' in page.text
    assert '<a href="operate"' not in page.text
    assert "sign-out" not in outside.text


async def test_a_page_of_an_unknown_key_leads_to_the_sign_in_and_shows_no_navigation(keyed: ApiStage) -> None:
    async with keyed.client(key="tl_unknown") as unknown:
        page = await unknown.get("/console/operate")

    assert (page.status_code, page.headers["location"]) == (303, "./sign-in?next=operate")


@pytest.mark.parametrize("address", ["sessions", "sign-in", "sessions/{id}", "sessions/{id}/updates"])
async def test_addresses_hold_behind_a_prefix_that_a_proxy_adds(client: httpx.AsyncClient, address: str) -> None:
    page = await client.get(f"/console/{address.format(id=await open_chat(client))}")
    base = re.search(r'<base href="([^"]+)"', page.text)

    if base is not None:
        assert str(httpx.URL(f"http://proxy/tools/console/{address}").join(base[1])) == "http://proxy/tools/console/"
    assert not re.search(r'(?:src|href|action|hx-get|data-url)="/', page.text)


def test_words_are_yaml_without_repetition() -> None:
    text = files(PACKAGE).joinpath("german.yaml").read_text(encoding="utf-8")

    assert len(yaml.safe_load(text)) == len([line for line in text.splitlines() if line.strip()])
