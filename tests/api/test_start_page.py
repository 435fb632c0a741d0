"""The address of the service itself leads to its documentation, as a page for browsers and as JSON for programs."""

import re
from dataclasses import replace

import pytest

from fakes.api_stage import KEYED, LOCAL, set_stage
from throughline.db.database import Database
from throughline.http.headers import prefers_html
from throughline.http.services import ApiConfig

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
LINKS = {
    "reference": "docs",
    "openapi": "openapi.json",
    "live": "health/live",
    "ready": "health/ready",
    "metrics": "metrics",
}


@pytest.mark.parametrize("config", [KEYED, LOCAL, replace(KEYED, trusted_socket=True)])
async def test_a_program_gets_the_links_as_json(database: Database, config: ApiConfig) -> None:
    async with set_stage(database, config).client() as client:
        answer = await client.get("/")
        served = [(await client.get(f"/{link}")).status_code for link in LINKS.values()]

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "name": "Throughline",
        "version": "0.0.0",
        "is_key_needed": config is KEYED,
        "links": LINKS,
    }
    assert served == [200] * len(LINKS)


@pytest.mark.parametrize(("config", "words"), [(KEYED, "need an API key"), (LOCAL, "need no API key")])
async def test_a_browser_gets_a_page_that_loads_nothing(database: Database, config: ApiConfig, words: str) -> None:
    async with set_stage(database, config).client() as client:
        page = await client.get("/", headers={"Accept": BROWSER})

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert re.findall(r'<a href="([^"]*)">', page.text) == list(LINKS.values())
    assert "Throughline 0.0.0" in page.text
    assert words in page.text
    assert page.headers["vary"] == "Accept"
    assert page.headers["content-security-policy"].startswith("default-src 'none';")
    assert re.findall(r"<script|<style|<link(?! rel=\"icon\" href=\"data:,\")|<img|://", page.text) == []


async def test_the_page_is_not_part_of_the_interface(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        document = await client.get("/openapi.json")
        refused = await client.post("/")

    assert "/" not in document.json()["paths"]
    assert refused.status_code == 405


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "text/*, application/json;q=0.5", "TEXT/HTML;q=0.2"])
def test_a_page_is_preferred(accept: str) -> None:
    assert prefers_html([accept])


@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/json", "application/json, text/html;q=0.9", "text/html;q=0", "image/png"]
)
def test_json_is_preferred_to_a_page(accept: str) -> None:
    assert not prefers_html([accept])
