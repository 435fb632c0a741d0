"""A script must be used up exactly, and a double in its own process can be driven from outside."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fakes.provider_double import ProviderDouble, ScriptStep, Verdict, serve_double
from fakes.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
HEADERS = {"authorization": "Bearer key"}


@pytest.fixture
def own_double() -> Iterator[ProviderDouble]:
    with serve_double(ProviderDouble()) as double:
        yield double


def ask(url: str) -> httpx.Response:
    body = {"model": "double-8k-o200k", "messages": [{"role": "user", "content": "hello"}]}
    return httpx.post(f"{url}/chat/completions", timeout=HANG_SECONDS, json=body, headers=HEADERS)


def test_a_step_nobody_asked_for_fails_the_test(own_double: ProviderDouble) -> None:
    own_double.script(ScriptStep(text="one"), ScriptStep(text="two"))

    ask(own_double.url)

    with pytest.raises(AssertionError, match="1 steps of the script '' were not asked for"):
        own_double.assert_script_used()


def test_a_request_beyond_the_script_is_refused_and_fails_the_test(own_double: ProviderDouble) -> None:
    own_double.script(ScriptStep(text="one"))

    answered, refused = ask(own_double.url), ask(own_double.url)

    assert (answered.status_code, refused.status_code) == (200, 400)
    with pytest.raises(AssertionError, match="had no step left"):
        own_double.assert_script_used()


def test_a_script_may_be_followed_by_default_answers(own_double: ProviderDouble) -> None:
    own_double.script(ScriptStep(text="one"), then_default=True)

    texts = [ask(own_double.url).json()["choices"][0]["message"]["content"] for _ in range(2)]

    assert texts == ["one", "Answer 1 to: hello"]
    own_double.assert_script_used()


@pytest.mark.slow
def test_a_double_in_its_own_process_is_scripted_counted_and_reset_from_outside() -> None:
    command = [sys.executable, "-m", "fakes.provider_double", "--port", "0", "--print-url"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'app'}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        control = f"{url.removesuffix('/v1')}/control"
        httpx.post(
            f"{control}/script",
            timeout=HANG_SECONDS,
            json={"steps": [{"text": "scripted"}, {"failure": "server_error"}]},
        )

        texts = [ask(url).json(), ask(url).json()]
        requests = httpx.get(f"{control}/requests", timeout=HANG_SECONDS, params={"since": 1}).json()
        stats = httpx.get(f"{control}/stats", timeout=HANG_SECONDS).json()
        prompts = [[{"role": "user", "content": "x" * 20}]]
        counted = httpx.post(
            f"{control}/count", timeout=HANG_SECONDS, json={"model": "double-8k-bytes2", "prompts": prompts}
        ).json()
        httpx.post(f"{control}/reset", timeout=HANG_SECONDS)
        after = httpx.get(f"{control}/stats", timeout=HANG_SECONDS).json()
        process.terminate()

    assert texts[0]["choices"][0]["message"]["content"] == "scripted"
    assert [(found["number"], found["verdict"], found["prompt"]) for found in requests] == [(2, Verdict.FAILED, [])]
    assert stats == {"verdicts": {"answered": 1, "failed": 1, "over_window": 0, "invalid": 0}, "complaints": []}
    assert counted == {"prompts": [3 + 7 + 10], "tools": 0}
    assert sum(after["verdicts"].values()) == 0
