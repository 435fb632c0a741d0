"""A script must be used up exactly, the cache reads only what was marked, and a double can run as its own process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.anthropic_double import AnthropicDouble, serve_anthropic
from fakes.anthropic_double.cache import CacheUse, PromptCache
from fakes.anthropic_double.units import Unit
from fakes.provider_double import SUMMARISER, ScriptStep, Verdict
from fakes.waiting import HANG_SECONDS
from throughline.context.summaries.summary_prompt import SUMMARISER_SYSTEM_PROMPT

ROOT = Path(__file__).parents[2]
HEADERS = {"x-api-key": "key", "anthropic-version": "2023-06-01"}


@pytest.fixture
def own_double() -> Iterator[AnthropicDouble]:
    with serve_anthropic(AnthropicDouble()) as double:
        yield double


def ask(url: str, text: str = "hello", **more: object) -> httpx.Response:
    messages = [{"role": "user", "content": text}]
    body = {"model": "double-8k-o200k", "max_tokens": 50, "messages": messages, **more}
    return httpx.post(f"{url}/v1/messages", json=body, headers=HEADERS, timeout=HANG_SECONDS)


def said(response: httpx.Response) -> str:
    content: list[dict[str, Any]] = response.json()["content"]
    return "".join(str(block["text"]) for block in content)


def test_a_step_nobody_asked_for_fails_the_test(own_double: AnthropicDouble) -> None:
    own_double.script(ScriptStep(text="one"), ScriptStep(text="two"))

    ask(own_double.url)

    with pytest.raises(AssertionError, match="1 steps of the script '' were not asked for"):
        own_double.assert_script_used()


def test_a_request_beyond_the_script_is_refused_and_fails_the_test(own_double: AnthropicDouble) -> None:
    own_double.script(ScriptStep(text="one"))

    answered, refused = ask(own_double.url), ask(own_double.url)

    assert (answered.status_code, refused.status_code) == (200, 400)
    with pytest.raises(AssertionError, match="had no step left"):
        own_double.assert_script_used()


def test_conversations_and_summarisers_have_lines_of_their_own(anthropic_double: AnthropicDouble) -> None:
    anthropic_double.script(ScriptStep(text="for bob"), line="bob")
    anthropic_double.script(ScriptStep(text="a summary"), line=SUMMARISER)

    texts = [
        said(ask(anthropic_double.url, system="[script:bob] Be brief.")),
        said(ask(anthropic_double.url, "[#3 user] hi", system=SUMMARISER_SYSTEM_PROMPT)),
        said(ask(anthropic_double.url, system="[script:eve] Be brief.")),
    ]

    assert texts == ["for bob", "a summary", "Answer 1 to: hello"]
    assert [record.positions for record in anthropic_double.requests] == [(), (3,), ()]
    assert [record.is_summary for record in anthropic_double.requests] == [False, True, False]


def test_the_stable_prefix_is_measured_without_the_markers(anthropic_double: AnthropicDouble) -> None:
    marker = {"cache_control": {"type": "ephemeral"}}
    first = [{"role": "user", "content": [{"type": "text", "text": "hello", **marker}]}]
    more = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "and?"}]
    unmarked = [{"role": "user", "content": "hello"}, *more]

    ask(anthropic_double.url, messages=first, system="[script:bob]")
    ask(anthropic_double.url, messages=unmarked, system="[script:bob]")

    record = anthropic_double.requests[1]
    assert record.shared_bytes == record.previous_bytes > 0


def units(*identities: str, marked: tuple[int, ...]) -> tuple[Unit, ...]:
    return tuple(Unit(identity, 1000, index in marked) for index, identity in enumerate(identities))


def test_the_cache_reads_what_was_written_up_to_a_marker_and_nothing_too_short() -> None:
    cache = PromptCache()

    uses = [
        cache.use("m", units("a", marked=(0,))),
        cache.use("m", units("a", "b", marked=(1,))),
        cache.use("m", units("a", "b", "c", marked=(2,))),
        cache.use("m", units("a", "b", "d", marked=())),
        cache.use("m", units("x", "b", "c", marked=(2,))),
        cache.use("other", units("a", "b", "c", marked=(2,))),
    ]

    assert uses == [
        CacheUse(0, 0),
        CacheUse(0, 2000),
        CacheUse(2000, 1000),
        CacheUse(0, 0),
        CacheUse(0, 3000),
        CacheUse(0, 3000),
    ]


def test_the_cache_looks_back_twenty_blocks_from_a_marker() -> None:
    names = [str(number) for number in range(24)]
    cache = PromptCache()
    cache.use("m", units(*names[:3], marked=(2,)))

    near = cache.use("m", units(*names[:23], marked=(22,)))
    cache = PromptCache()
    cache.use("m", units(*names[:3], marked=(2,)))
    far = cache.use("m", units(*names, marked=(23,)))

    assert (near.read, far.read) == (3000, 0)


@pytest.mark.slow
def test_a_double_in_its_own_process_is_scripted_counted_and_reset_from_outside() -> None:
    command = [sys.executable, "-m", "fakes.anthropic_double", "--port", "0", "--print-url"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'app'}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            with httpx.Client(base_url=f"{url}/control/", timeout=HANG_SECONDS) as control:
                control.post("script", json={"steps": [{"text": "scripted"}, {"failure": "overloaded"}]})
                answers = [ask(url), ask(url)]
                requests = control.get("requests", params={"since": 1}).json()
                stats = control.get("stats").json()
                prompts = [{"messages": [{"role": "user", "content": "x" * 20}]}]
                counted = control.post("count", json={"model": "double-8k-bytes2", "prompts": prompts}).json()
                control.post("reset")
                after = control.get("stats").json()
        finally:
            process.terminate()

    assert (said(answers[0]), answers[1].status_code) == ("scripted", 529)
    assert [(found["number"], found["verdict"], found["prompt"]) for found in requests] == [(2, Verdict.FAILED, [])]
    assert stats == {"verdicts": {"answered": 1, "failed": 1, "over_window": 0, "invalid": 0}, "complaints": []}
    assert counted == {"prompts": [3 + 7 + 10]}
    assert sum(after["verdicts"].values()) == 0
