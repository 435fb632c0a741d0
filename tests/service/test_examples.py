"""The front ends in examples/, built and used in a real Chromium before the real service."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.async_api import Page

from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.service_process import free_port, run_service
from service.test_console import CHROMIUM, WITHIN, chromium
from service.test_generated_clients import run

NPM = shutil.which("npm") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.proof,
    pytest.mark.skipif(not NPM, reason="npm is not installed: the examples are not built"),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: install the package `chromium`, or name one in CHROMIUM"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"
LONG = "one two three four five " * 20
THEME = ScriptedCall("c1", "set_theme", '{"theme": "dark"}')
SUM = ScriptedCall("c2", "calculator", '{"expression": "17 * 23"}')
QUESTION = ScriptedCall("c3", "ask_user", '{"question": "Which one?", "options": ["red", "blue"]}')


CUT = "network error"
"""What AG-UI's client throws into the page, too, when it reports that a stream was cut."""


@dataclass(frozen=True, slots=True)
class Built:
    """An example that is served at `url` and uses the service at `service_port`."""

    url: str
    service_port: int


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base class names it
        """Print nothing."""


@pytest.fixture(scope="module", params=["use-chat", "copilotkit"])
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Built]:
    """Install and build an example, and serve what was built."""
    port, folder = free_port(), tmp_path_factory.mktemp(request.param)
    left_out = shutil.ignore_patterns("node_modules", "dist")
    project = shutil.copytree(EXAMPLES / request.param, folder / "project", ignore=left_out)
    asyncio.run(run(project, NPM, "ci", "--no-audit", "--no-fund", "--ignore-scripts"))
    asyncio.run(run(project, NPM, "run", "build", VITE_SERVICE_URL=f"http://127.0.0.1:{port}"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=str(project / "dist"))) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield Built(f"http://127.0.0.1:{server.server_port}", port)
        server.shutdown()
        serving.join()


@pytest.fixture
def settings(on_double: Mapping[str, str], example: Built) -> Mapping[str, str]:
    return {**on_double, "AGENTS_DIR": str(EXAMPLES / "agents"), "CORS_ORIGINS": example.url}


class Visit:
    """A visit of an example's page, with the errors of its scripts and its requests to other hosts."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.set_default_timeout(WITHIN)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", lambda request: self._note_foreign(request.url))

    def _note_foreign(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.wrong.append(f"a request to {url}")

    async def say(self, text: str) -> None:
        await self.until_ready()
        await self.page.get_by_label("Message", exact=True).fill(text)
        await self.page.keyboard.press("Enter")

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def until(self, text: str) -> None:
        await self.page.locator("li.assistant").filter(has_text=text).last.wait_for()

    async def until_ready(self) -> None:
        await self.page.get_by_role("button", name="Send", exact=True).wait_for()

    async def messages(self) -> list[str]:
        texts = await self.page.locator("li .text").all_inner_texts()
        return [text.strip() for text in texts]


@asynccontextmanager
async def visiting(example: Built) -> AsyncGenerator[Visit]:
    async with chromium() as browser:
        visit = Visit(await browser.new_page())
        await visit.page.goto(example.url)
        yield visit
        assert [one for one in visit.wrong if one != CUT] == []


async def test_the_page_shows_answers_and_runs_its_own_tool(
    folder: Path, settings: Mapping[str, str], example: Built, provider_double: ProviderDouble
) -> None:
    provider_double.script(
        ScriptStep("Hello, person.", pieces=5), ScriptStep(calls=(THEME,)), ScriptStep("It is dark now.")
    )
    async with run_service(folder, settings, port=example.service_port), visiting(example) as visit:
        await visit.say("hello")
        await visit.until("Hello, person.")
        await visit.until_ready()
        await visit.say("dark please")
        await visit.until("It is dark now.")
        await visit.until_ready()
        shown = await visit.messages()
        await visit.page.get_by_role("meter").wait_for()
        assert await visit.page.locator("html").get_attribute("data-theme") == "dark"

        await visit.page.reload()
        await visit.until("It is dark now.")

        assert shown == ["hello", "Hello, person.", "dark please", "It is dark now."]
        assert await visit.messages() == shown


async def test_a_call_is_approved_one_is_rejected_and_a_question_is_answered(
    folder: Path, settings: Mapping[str, str], example: Built, provider_double: ProviderDouble
) -> None:
    again = ScriptedCall("c4", "calculator", '{"expression": "1 + 1"}')
    provider_double.script(
        *(ScriptStep(calls=(call,)) for call in (SUM, again, QUESTION)), ScriptStep("It is 391, and blue.")
    )
    async with run_service(folder, settings, port=example.service_port), visiting(example) as visit:
        await visit.say("how much?")
        await visit.press("Approve")
        await visit.until("1 + 1")
        await visit.page.reload()
        await visit.until("391")
        await visit.press("Reject")
        await visit.press("blue")
        await visit.until("It is 391, and blue.")
        await visit.until_ready()

        assert await visit.messages() == ["how much?", "It is 391, and blue."]


async def test_an_answer_goes_on_after_a_reload_and_a_stop_ends_it(
    folder: Path, settings: Mapping[str, str], example: Built, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(LONG * 20, pieces=400, delay_seconds=0.1), ScriptStep("Briefly."))
    async with run_service(folder, settings, port=example.service_port) as service, visiting(example) as visit:
        await visit.say("count")
        await visit.until("one two")
        await visit.page.reload()
        await visit.until("one two")
        await visit.press("Stop")
        await visit.until_ready()
        await visit.say("shorter")
        await visit.until("Briefly.")
        await visit.until_ready()
        runs = (await service.client.get("/v1/runs")).raise_for_status().json()["data"]

        assert [run["status"] for run in runs] == ["succeeded", "cancelled"]
        assert [text.partition(" ")[0] for text in await visit.messages()] == ["count", "one", "shorter", "Briefly."]


async def test_an_answer_goes_on_by_itself_after_the_service_was_killed(
    folder: Path, settings: Mapping[str, str], example: Built, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(LONG, pieces=40, delay_seconds=0.1), ScriptStep(LONG))
    async with run_service(folder, settings, port=example.service_port) as service, visiting(example) as visit:
        await visit.say("count")
        await visit.until("one two")
        await service.kill()
        async with run_service(folder, settings, port=example.service_port):
            await visit.until(LONG.strip())
            await visit.until_ready()

            assert await visit.messages() == ["count", LONG.strip()]
            await visit.page.reload()
            await visit.until(LONG.strip())
            assert await visit.messages() == ["count", LONG.strip()]
