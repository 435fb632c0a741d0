"""AG-UI's events of random runs: each stream obeys the rules, and leaves the client with what is stored."""

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fakes.ag_ui_client import Json, apply, check_stream, read_events
from fakes.played_runs import WEATHER, PlayedRun, runs
from service.test_generated_clients import run
from throughline.ag_ui.events import AgUiEvents, message_json
from throughline.ag_ui.run_input import RunAgentInput
from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import FollowedPart
from throughline.domain.basic_types import MessageId
from throughline.domain.events import RunEvent
from throughline.domain.message import Message, Source
from throughline.domain.run import RunStatus

ASKED = RunAgentInput.model_validate({"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": []})


async def printed(made_by: PlayedRun, *, is_joined: bool = False) -> bytes:
    """Return the whole stream."""

    async def read(complete: frozenset[MessageId]) -> list[Message]:
        return [one for one in made_by.messages if one.id in complete]

    printer = AgUiEvents(ASKED, ChatTurn(0, FollowedPart(made_by.run), is_joined=is_joined), read)
    made = [await printer.begin()]
    for place, event in enumerate(made_by.with_unfinished_step().events, start=1):
        made.append(await printer.encode_event(RunEvent(made_by.run.id, place, event)))
    return b"".join(made)


@given(runs())
def test_every_stream_obeys_the_rules_and_shows_what_is_stored(run: PlayedRun) -> None:
    events = read_events(asyncio.run(printed(run)))

    check_stream(events)
    messages: list[Json] = []
    apply(messages, events)
    shown = messages[: len(run.messages)] if run.is_cut else messages
    assert [_said(message) for message in shown] == [_said(message_json(message)) for message in run.messages]


def _said(message: Json) -> object:
    calls = [(call["id"], call["function"]["arguments"]) for call in message.get("toolCalls", ())]
    return message["id"], message["role"], message.get("content") or "", calls


@given(runs())
def test_a_waiting_part_names_what_it_waits_for(run: PlayedRun) -> None:
    events = read_events(asyncio.run(printed(run)))

    wait = run.end.run.waiting_for
    if wait is None:
        assert (events[-1]["type"] == "RUN_ERROR") is (run.end.run.status is RunStatus.FAILED)
        return
    outcome = events[-1]["outcome"]
    asked = [awaited.id for awaited in wait.calls if awaited.name != WEATHER.name]
    assert [interrupt["id"] for interrupt in outcome["interrupts"]] == asked


PROGRAM = Path(__file__).parent / "javascript"
NPM = shutil.which("npm")
RUNS = 500


@dataclass(frozen=True)
class ReadByClient:
    """Streams of a run, the last of them whole, and what the client has to have after them."""

    run: PlayedRun
    streams: list[str]

    def check(self, read: Json) -> None:
        """Compare what the client has with what is stored, and with how the run ended."""
        run, wait = self.run.end.run, self.run.end.run.waiting_for
        shown = read["messages"][: len(self.run.messages)] if self.run.is_cut else read["messages"]
        assert [_said(message) for message in shown] == [_said(message_json(stored)) for stored in self.run.messages]
        assert read["errors"] == []
        asked = () if wait is None else tuple(one.id for one in wait.calls if one.name != WEATHER.name)
        assert tuple(read["interrupts"]) == asked
        ends = {RunStatus.FAILED: "internal_error", RunStatus.CANCELLED: "cancelled"}
        assert read["ended"] == ends.get(run.status, "interrupt" if asked else "success")


def random_cases(count: int) -> list[ReadByClient]:
    """Return random runs; of some the first stream is cut off, and the run is asked for again."""
    cases: list[ReadByClient] = []

    @settings(max_examples=count, database=None, deadline=None, phases=(Phase.generate,), derandomize=True)
    @given(runs(), st.booleans(), st.integers(1, 10_000))
    def add(run: PlayedRun, is_cut: bool, at: int) -> None:  # noqa: FBT001  # hypothesis passes it
        whole = asyncio.run(printed(run, is_joined=is_cut)).decode()
        cut = asyncio.run(printed(run)).decode()
        cases.append(ReadByClient(run, [cut[: at % len(cut)], whole] if is_cut else [whole]))

    add()
    return cases


@pytest.mark.proof
@pytest.mark.skipif(NPM is None, reason="npm is not installed: the client cannot be installed")
async def test_ag_uis_own_client_accepts_five_hundred_random_runs(tmp_path: Path) -> None:
    project = shutil.copytree(PROGRAM, tmp_path / "project", ignore=shutil.ignore_patterns("node_modules"))
    cases = await asyncio.to_thread(random_cases, RUNS)
    (project / "cases.json").write_text(json.dumps([{"streams": case.streams} for case in cases]))

    await run(project, NPM or "", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    read = json.loads(await run(project, "node", "read_streams.mjs", "cases.json"))

    assert len(cases) >= RUNS
    for case, one in zip(cases, read, strict=True):
        case.check(one)


def test_images_of_a_message_are_parts() -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image", "source": {"type": "url", "value": "https://a/b.png"}}]
    data = {"type": "image", "source": {"type": "data", "mimeType": "image/png", "value": "aGk="}}
    given_message = {"id": "1", "role": "user", "content": [*parts, data]}
    asked = RunAgentInput.model_validate({"threadId": "t", "runId": "r", "messages": [given_message]})

    _, (message,) = asked.read_messages(Source.API)

    assert json.loads(json.dumps(message_json(message))) == given_message
