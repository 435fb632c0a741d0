"""The console in a real Chromium, before the real service: chats, reloads, restarts, hostile texts, accessibility."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, async_playwright, expect

from console.test_chat_page import HOSTILE
from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.service_process import ServiceProcess, free_port, run_service
from fakes.waiting import HANG_SECONDS
from service.test_tool_servers import calling
from service.test_tool_servers import environment as environment_of_servers
from throughline.console.chat import SHOWN

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: install the package `chromium`, or name one in CHROMIUM"),
]
AGENT = "name: careful\ntools: ['files:delete', ask_user]\nneeds_approval: [delete]\n"
TOOL = '''
def delete(file: str) -> str:
    """Delete a file.

    Args:
        file: its name
    """
    return f"{file} is deleted"
'''
ANSWER = "li.assistant[data-position]"
WITHIN = HANG_SECONDS * 1000
LONG = "".join(f"Line {number}:{' understanding' * 8}\n" for number in range(1_700))
"""About 200 kB, of long words that are a token each."""

LONG_AGENT = "name: writer\ncontext: {window: 128000, response_reserve: 30000}\n"

PAGES = (
    *("sessions/{id}/context", "sessions/{id}/summaries", "sessions/{id}/summaries/1", "sessions/{id}/search?q=number"),
    *("search?q=number", "operate/runs", "operate", "operate/keys", "costs"),
)
"""Pages beside the chat, of a session with a summary."""

MANY, MOST_KEPT = 1_000, 600
"""Messages of a long chat, and those that the page keeps."""

FAR, MOST_MOVED = 1_000_000, 3
"""Pixels to scroll for an end of the page, and those that a message may move while others come or go above it."""

MOST_PRESSED = 40
READ_IDS = "(items) => items.map((one) => one.id || one.className)"

MOST_TASK = 2_000
"""Milliseconds that no task of a page takes even on a busy machine: one that grows with the square would."""


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """A page of the console, and what went wrong on it: errors of scripts, refusals of its policy, foreign requests."""

    def __init__(self, page: Page, service: ServiceProcess) -> None:
        self.page = page
        self.service = service
        self.wrong: list[str] = []
        page.set_default_timeout(WITHIN)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda told: self.wrong.append(told.text) if _is_refusal(told.text) else None)
        page.on("request", lambda request: self._note_foreign(request.url))
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))

    def _note_foreign(self, url: str) -> None:
        if not url.startswith((self.service.url, "data:")):
            self.wrong.append(f"a request to {url}")

    async def open_chat(self, agent: str = "assistant") -> str:
        """Open a chat as a person does; return its id."""
        await self.page.goto(self.service.url)
        await self.page.select_option("#agent", agent)
        await self.page.click("main button.main")
        await self.page.wait_for_url("**/console/sessions/*")
        return self.page.url.rpartition("/")[2]

    async def say(self, text: str) -> None:
        await self.page.fill("#text", text)
        await self.page.keyboard.press("Enter")

    async def until(self, selector: str, text: str) -> None:
        await self.page.locator(selector).filter(has_text=text).first.wait_for()

    async def press_until(self, key: str, selector: str) -> None:
        """Press a key until the focus is on the element."""
        for _ in range(MOST_PRESSED):
            await self.page.keyboard.press(key)
            if await self.page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
                return
        raise AssertionError(selector)


async def import_chat(service: ServiceProcess, messages: int) -> str:
    """Import a chat of so many messages of different sizes; return its id."""
    texts = (f"Message number {at} of the harbour log.\n\n" + f"- line {at}\n" * (at % 17) for at in range(messages))
    said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    made = await service.client.post("/v1/sessions/import", json={"agent": "assistant", "messages": said})
    return str(made.raise_for_status().json()["id"])


def _is_refusal(text: str) -> bool:
    return "Content Security Policy" in text or "Refused to" in text


@asynccontextmanager
async def visiting(service: ServiceProcess, **context: object) -> AsyncGenerator[Visit]:
    async with chromium() as browser:
        page = await (await browser.new_context(**context)).new_page()  # type: ignore[arg-type]  # settings by name
        visit = Visit(page, service)
        yield visit
        assert visit.wrong == []


def environment(folder: Path, on_double: Mapping[str, str]) -> Mapping[str, str]:
    agents = folder / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "files.py").write_text(TOOL)
    (agents / "careful.yaml").write_text(AGENT)
    (agents / "writer.yaml").write_text(LONG_AGENT)
    return {**on_double, "AGENTS_DIR": str(agents)}


async def test_a_first_visit_leads_to_a_streamed_answer_with_markdown(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(
        ScriptStep("Here is **the** table:\n\n|a|b|\n|---|---|\n|1|2|\n", pieces=20, delay_seconds=0.02)
    )
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        await visit.open_chat()
        await visit.say("Hello there")
        await visit.until(f"{ANSWER} strong", "the")

        await expect(visit.page.locator(f"{ANSWER} table td")).to_have_count(2)
        await expect(visit.page.locator("li.user")).to_have_count(1)
        assert await visit.page.locator("#session-title").inner_text() == "Hello there"


async def test_a_reload_in_the_middle_of_an_answer_goes_on(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("one two three four five " * 20, pieces=40, delay_seconds=0.1))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        await visit.open_chat()
        await visit.say("count")
        await visit.until("li.writing", "one two")
        await visit.page.fill("#text", "a draft")
        await visit.page.reload()
        await visit.until("li.writing", "one two")
        await visit.page.locator(ANSWER).wait_for()

        assert await visit.page.locator("#m2 .body").inner_text() == ("one two three four five " * 20).strip()
        await expect(visit.page.locator("li.message")).to_have_count(2)
        assert await visit.page.input_value("#text") == "a draft"


async def test_a_restart_of_the_service_in_the_middle_loses_nothing(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    text = "one two three four five " * 10
    provider_double.script(ScriptStep(text, pieces=40, delay_seconds=0.1), ScriptStep(text))
    port = free_port()
    async with run_service(folder, on_double, port=port) as service, visiting(service) as visit:
        await visit.open_chat()
        await visit.say("count")
        await visit.until("li.writing", "one two")
        await service.kill()
        async with run_service(folder, on_double, port=port):
            await visit.page.locator(ANSWER).wait_for()

            assert await visit.page.locator("#m2 .body").inner_text() == text.strip()


async def test_stop_keeps_what_was_written(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("never ending " * 400, pieces=400, delay_seconds=0.1))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        await visit.open_chat()
        await visit.say("go")
        await visit.until("li.writing", "never ending")
        await visit.page.click("#stop")
        await visit.until(ANSWER, "never ending")

        await visit.page.locator("#stop").wait_for(state="hidden")


async def test_a_call_is_approved_with_changed_arguments_and_a_question_answered(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    question = '{"question": "Which one?", "options": ["red", "blue"]}'
    provider_double.script(
        ScriptStep(calls=(ScriptedCall("c1", "delete", '{"file": "a.txt"}'),)),
        ScriptStep(calls=(ScriptedCall("c2", "ask_user", question),)),
        ScriptStep("All is done."),
    )
    async with run_service(folder, environment(folder, on_double)) as service, visiting(service) as visit:
        await visit.open_chat("careful")
        await visit.say("delete it")
        await visit.page.fill("textarea[name=arguments]", '{"file": "b.txt"}')
        await visit.page.click("button[value=approve]")
        await visit.page.locator("button[value=blue]").wait_for()
        await visit.page.reload()
        await visit.page.fill("textarea[name=output]", "typed")
        async with visit.page.expect_response(lambda response: "/updates" in response.url) as updates:
            await visit.page.evaluate("document.activeElement.blur()")
        await (await updates.value).finished()
        await visit.page.wait_for_timeout(200)  # what was loaded is shown
        assert await visit.page.input_value("textarea[name=output]") == "typed"
        await visit.page.click("button[value=blue]")
        await visit.until(ANSWER, "All is done.")

        told = await visit.page.locator("#messages").inner_text()
        assert "b.txt is deleted" in told


async def test_the_progress_of_a_call_is_shown(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(calling("half"))
    async with run_service(folder, environment_of_servers(folder, on_double)) as service, visiting(service) as visit:
        await visit.open_chat("served")
        await visit.say("go")
        await visit.until('details[data-of="call_1"] > summary', "1 / 2 half of it")
        await visit.page.click("#stop")
        await visit.page.locator("#stop").wait_for(state="hidden")


async def test_a_message_is_edited_and_asked_again_in_a_copy(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(*(ScriptStep(text) for text in ("First.", "Second.", "Third.")))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        first = await visit.open_chat()
        await visit.say("hello")
        await visit.until(ANSWER, "First.")
        await visit.page.hover("#m1")
        await visit.page.click("#m1 [data-act=again]")
        await visit.until(ANSWER, "Second.")
        await visit.page.hover("#m1")
        await visit.page.click("#m1 [data-act=edit]")
        await visit.page.locator("#edited").wait_for()
        await visit.say("good bye")
        await visit.until(ANSWER, "Third.")

        await expect(visit.page.locator("li.message")).to_have_count(2)
        assert "good bye" in await visit.page.locator("#m1").inner_text()
        assert [row["content"] for row in await service.history(first)] == ["hello", "First."]


async def test_a_second_tab_shows_what_the_first_one_does(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("From the first tab."))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        await visit.open_chat()
        other = await visit.page.context.new_page()
        await other.goto(visit.page.url)
        await visit.say("hello")
        await other.locator(ANSWER).filter(has_text="From the first tab.").wait_for(timeout=WITHIN)


async def test_hostile_texts_run_nothing(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    texts = [*HOSTILE, "\u202e" * 50 + "x", "x" * 100_000, "\\" * 5_000, "[" * 3_000]
    calls = ScriptedCall("c1", "read_history", '{"<img src=x onerror=alert(1)>": "</pre><script>alert(1)</script>"}')
    provider_double.script(*(ScriptStep(text) for text in texts), ScriptStep(calls=(calls,)), ScriptStep("end"))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        session = await service.new_session()
        for text in [*texts, "call"]:
            await service.send(session, text)
        await service.client.patch(f"/v1/sessions/{session}", json={"title": HOSTILE[0]})
        shown: list[str] = []
        visit.page.on("dialog", lambda dialog: shown.append(dialog.message))
        await visit.page.goto(f"{service.url}/console/sessions/{session}")
        while await visit.page.locator("#messages > .more").count():
            await visit.page.evaluate("document.getElementById('main').scrollTop = 0")
            await visit.page.wait_for_timeout(50)

        assert await visit.page.locator("li.message").count() >= 2 * len(texts)
        assert shown == []


async def test_a_long_answer_never_holds_the_page_for_long(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(LONG, pieces=400))
    async with run_service(folder, environment(folder, on_double)) as service, visiting(service) as visit:
        await visit.open_chat("writer")
        await visit.page.evaluate(
            "window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map("
            "(one) => one.duration))).observe({type: 'longtask', buffered: false})"
        )
        await visit.say("write")
        await visit.page.locator(ANSWER).wait_for()
        whole = await visit.page.locator("#m2").text_content() or ""

        assert "Line 0:" in whole
        assert "more characters" in whole
        assert [duration for duration in await visit.page.evaluate("window.tasks") if duration > MOST_TASK] == []


@pytest.mark.parametrize("context", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}}])
async def test_nothing_serious_is_inaccessible(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, context: dict[str, object]
) -> None:
    provider_double.script(ScriptStep("An answer with `code` and a [link](https://example.com)."))
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    async with run_service(folder, on_double) as service, visiting(service, **context) as visit:
        session, long = await visit.open_chat(), await import_chat(service, 40)
        await visit.say("hello")
        await visit.page.locator(ANSWER).wait_for()
        (await service.client.post(f"/v1/sessions/{long}/summarize")).raise_for_status()
        for address in ("sessions", "sign-in", f"sessions/{session}", *(page.format(id=long) for page in PAGES)):
            await visit.page.goto(f"{service.url}/console/{address}")
            await visit.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            await visit.page.evaluate(axe)
            found = await visit.page.evaluate("axe.run().then((told) => told.violations)")
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}
            ]
            assert serious == [], address
            width = await visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, address


class Scrolling:
    """Scrolls through a chat whose further parts are loaded only when the page rests."""

    def __init__(self, page: Page) -> None:
        self.page, self.gate, self.asked = page, asyncio.Semaphore(0), asyncio.Event()
        self.wheeled = 0

    async def open(self, url: str) -> None:
        """Open a page, which adds up how far it is scrolled."""
        await self.page.goto(url)
        await self.page.evaluate(
            "() => { window.wheeled = 0;"
            " addEventListener('wheel', (event) => { window.wheeled += event.deltaY; }, { passive: true }); }"
        )

    async def wheel(self, pixels: int) -> None:
        """Turn the wheel. The page may take it in later."""
        self.wheeled += pixels
        await self.page.mouse.wheel(0, pixels)

    async def hold(self, route: Route) -> None:
        self.asked.set()
        await self.gate.acquire()
        await route.continue_()

    async def scroll(self, pixels: int, seen: int, awaited: int) -> None:
        """Scroll to an end of what is loaded; `awaited` is loaded behind it then, and `seen` keeps its place."""
        while not self.asked.is_set():  # the end moves away while messages come into view and get their real heights
            await self.wheel(pixels)
        self.asked.clear()
        while await self.page.evaluate("window.wheeled") != self.wheeled:  # what comes later would move the page
            await asyncio.sleep(0.02)
        before = await resting_place(self.page, seen)
        self.gate.release()
        await self.page.locator(f"#m{awaited}").wait_for(state="attached")

        assert await resting_place(self.page, seen) == pytest.approx(before, abs=MOST_MOVED), seen

    async def check_kept(self) -> None:
        await expect(self.page.locator("#messages > .more")).to_have_count(1)
        await expect(self.page.locator("#messages > li.message")).to_have_count(MOST_KEPT)


async def test_an_answer_that_streams_behind_later_messages_leaves_the_order(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("much later " * 100, pieces=100, delay_seconds=0.1))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        page, session = visit.page, await import_chat(service, 3 * SHOWN)
        await page.goto(f"{service.url}/console/sessions/{session}?at={SHOWN}")
        shown = await page.eval_on_selector_all("#messages > li", READ_IDS)
        await service.client.post(
            f"/v1/sessions/{session}/messages", json={"content": "go"}, headers={"Prefer": "respond-async"}
        )
        await page.locator("#stop").wait_for(state="visible")
        await page.locator("#stop").wait_for(state="hidden")

        assert await page.eval_on_selector_all("#messages > li", READ_IDS) == shown
        assert f"{3 * SHOWN} messages" in await page.locator("#message-count").inner_text()


async def test_a_question_stands_above_the_answer_that_is_being_written(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("slowly " * 100, pieces=100, delay_seconds=0.1))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        await visit.page.route("**/updates?*", delayed)
        await visit.open_chat()
        await visit.say("hello")
        await visit.until("li.writing", "slowly")
        await visit.page.locator("#m1").wait_for()

        assert await visit.page.locator("#m1 + li.writing").count() == 1


async def delayed(route: Route) -> None:
    await asyncio.sleep(0.5)
    await route.continue_()


async def test_scrolling_shows_all_messages_and_keeps_the_place(folder: Path, on_double: Mapping[str, str]) -> None:
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        page, scrolling = visit.page, Scrolling(visit.page)
        await page.route(re.compile("/messages[?]"), scrolling.hold)
        await scrolling.open(f"{service.url}/console/sessions/{await import_chat(service, MANY)}")
        await page.hover("#messages > li:last-child")
        for first in range(MANY - SHOWN + 1, 1, -SHOWN):
            await scrolling.scroll(-FAR, first, first - SHOWN)
        await scrolling.wheel(-FAR)
        await page.wait_for_function("document.getElementById('main').scrollTop === 0")
        await scrolling.check_kept()
        assert await page.locator("#m1").bounding_box() is not None

        for last in range(MOST_KEPT, MANY, SHOWN):
            await scrolling.scroll(FAR, last, last + SHOWN)
        await scrolling.check_kept()


async def resting_place(page: Page, position: int) -> float:
    """Return how far below the window's edge a message stands once nothing moves any more.

    A browser without a window may stop to draw frames on a busy machine: then a little time stands for a frame.
    """
    return float(
        await page.evaluate(
            "async (id) => { const top = () => document.getElementById(id).getBoundingClientRect().top;"
            " const frame = () => new Promise((next) => { requestAnimationFrame(next); setTimeout(next, 100); });"
            " let last; while (last !== (last = top())) for (let frames = 0; frames < 3; frames++)"
            " await frame(); return last; }",
            f"m{position}",
        )
    )


async def test_a_chat_is_held_with_the_keyboard_alone(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("By keyboard."))
    async with run_service(folder, on_double) as service, visiting(service) as visit:
        await visit.page.goto(service.url)
        await visit.page.keyboard.press("Enter")
        await visit.page.wait_for_url("**/console/sessions/*")
        await visit.page.keyboard.type("hello")
        await visit.page.keyboard.press("Enter")
        await visit.until(ANSWER, "By keyboard.")
        await visit.press_until("Shift+Tab", "#m1 a.position")
        await visit.press_until("Tab", "#m1 [data-act=edit]")
        await visit.page.keyboard.press("Enter")

        await visit.page.locator("#edited").wait_for()
