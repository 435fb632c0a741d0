"""The page `/docs` needs nothing but the service: no other host, no script inside the page."""

import re

from fakes.api_stage import KEYED, set_stage
from throughline.db.database import Database

LINK = re.compile(r'(?:src|href)="([^"]*)"')
TYPES = {"js": "text/javascript", "css": "text/css"}


async def test_all_that_the_page_links_to_is_served_here(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        page = await client.get("/docs")
        links = [link for link in LINK.findall(page.text) if link != "data:,"]
        served = {link: await client.get(f"/{link}") for link in links}

    assert page.status_code == 200
    assert sorted(served) == ["docs/start.js", "docs/swagger-ui-bundle.js", "docs/swagger-ui.css"]
    for link, response in served.items():
        assert response.status_code == 200, link
        assert response.headers["content-type"].startswith(TYPES[link.rpartition(".")[2]])
    assert "SwaggerUIBundle" in served["docs/swagger-ui-bundle.js"].text


async def test_the_page_may_load_from_the_service_only_and_runs_no_script_of_its_own(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        page, start = await client.get("/docs"), await client.get("/docs/start.js")

    policy = page.headers["content-security-policy"]
    scripts = re.search(r"script-src ([^;]*)", policy)
    assert scripts is not None
    assert scripts.group(1) == "'self'"
    assert policy.startswith("default-src 'none';")
    assert "://" not in page.text + start.text + policy
    assert re.findall(r"<script>|<style>|style=|\son\w+=", page.text) == []


async def test_the_page_asks_nobody_to_check_the_document(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        start = (await client.get("/docs/start.js")).text
        document = await client.get("/openapi.json")

    assert 'url: "openapi.json"' in start
    assert "validatorUrl: null" in start
    assert document.status_code == 200
    assert "/docs" not in document.json()["paths"]
