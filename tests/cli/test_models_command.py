"""`throughline models check`: what is printed, what is remarked on, and the exit code."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import Result

from fakes.fake_dependencies import FakeWorld
from throughline.domain.model_window import CheckedCall, CheckedModel, ModelCheck, ModelWindow, ToolUse, WindowOrigin
from throughline.domain.prompt import Usage

Throughline = Callable[..., Result]
WINDOW = ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
GUESSED = ModelWindow(128_000, WindowOrigin.TABLE, neighbour="gpt-4o")
ASSUMED = ModelWindow(4096, WindowOrigin.UNKNOWN, "Ollama")
MODEL = CheckedModel(
    "local", "openai:qwen3", "http://127.0.0.1:8000/v1", WINDOW, WINDOW, "tiktoken:cl100k_base", has_tools=True
)
CALL = CheckedCall(200, Usage(216, 45, 0), 0.3124, 0.5, 29, 25, "tool_calls", ToolUse.CALLED)
GOOD = ModelCheck(MODEL, CALL)


def run(check: ModelCheck, world: FakeWorld, throughline: Throughline) -> Result:
    world.check = check
    return throughline("models", "check", "local")


def test_a_model_that_works_is_shown_in_ten_lines(world: FakeWorld, throughline: Throughline) -> None:
    result = run(GOOD, world, throughline)

    lines = [line.split(None, 1) for line in result.stdout.splitlines()]
    assert {name: value.rstrip() for name, value in lines} == {
        "Agent": "local",
        "Model": "openai:qwen3",
        "Address": "http://127.0.0.1:8000/v1",
        "Window": "40,960 tokens (server: vLLM)",
        "Tokens": "tiktoken:cl100k_base: 200 counted, 216 reported (+8 %)",
        "Streaming": "first text after 312 ms, 58 tokens/s in 25 pieces",
        "Tools": "called",
        "Usage": "prompt 216, answer 45",
        "Cache": "0 tokens of the prompt were cached",
        "Finish": "tool_calls",
    }
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("check", "shown", "remark"),
    [
        (
            replace(GOOD, checked=replace(MODEL, window=ASSUMED, model_window=ASSUMED)),
            "4,096 tokens (assumed, unknown: Ollama)",
            "set context.window in the agent file",
        ),
        (
            replace(GOOD, checked=replace(MODEL, window=GUESSED, model_window=GUESSED)),
            "128,000 tokens (table)",
            "so it gets the window of gpt-4o, 128,000 tokens: check its spelling",
        ),
        (
            ModelCheck(replace(MODEL, summary_seconds=10), replace(CALL, text_tokens=40, text_seconds=10.0)),
            "4 tokens/s",
            "at 4 tokens/s a short summary of 250 tokens takes 62 s, and a turn waits 10",
        ),
        (
            replace(GOOD, checked=replace(MODEL, window=ModelWindow(64_000, WindowOrigin.AGENT_FILE))),
            "64,000 tokens (agent file); the model's: 40,960 (server)",
            "larger than the model's 40,960",
        ),
        (replace(GOOD, call=replace(CALL, tools=ToolUse.NOT_CALLED)), "not called", "its tools may not work"),
        (replace(GOOD, call=replace(CALL, usage=Usage())), "200 counted, not reported", "cannot correct"),
        (replace(GOOD, call=replace(CALL, usage=Usage(216))), "prompt 216, answer not reported", ""),
        (replace(GOOD, call=replace(CALL, usage=Usage(216, 45))), "Cache      not reported", ""),
        (replace(GOOD, call=replace(CALL, first_text_seconds=None)), "no text to measure", ""),
        (replace(GOOD, call=replace(CALL, pieces=1)), "first text after 312 ms, in one piece", ""),
        (replace(GOOD, checked=replace(MODEL, address="")), "the provider's own", ""),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(
    check: ModelCheck, shown: str, remark: str, world: FakeWorld, throughline: Throughline
) -> None:
    result = run(check, world, throughline)

    assert shown in result.stdout
    assert remark in result.stderr
    assert bool(remark) == bool(result.stderr)
    assert result.exit_code == 0


def test_a_call_that_fails_is_an_error_with_its_cause(world: FakeWorld, throughline: Throughline) -> None:
    result = run(ModelCheck(MODEL, None, "openai:qwen3: the key is not accepted; check it"), world, throughline)

    assert "40,960 tokens (server: vLLM)" in result.stdout
    assert "Streaming" not in result.stdout
    assert "Error: openai:qwen3: the key is not accepted; check it" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize(("has_tools", "exit_code"), [(True, 1), (False, 0)])
def test_refused_tools_fail_an_agent_that_has_some(
    *, has_tools: bool, exit_code: int, world: FakeWorld, throughline: Throughline
) -> None:
    call = replace(CALL, tools=ToolUse.REFUSED, refusal="start vLLM with --enable-auto-tool-choice")

    result = run(ModelCheck(replace(MODEL, has_tools=has_tools), call), world, throughline)

    assert "start vLLM with --enable-auto-tool-choice" in result.stderr
    assert result.exit_code == exit_code
    assert ("The agent local has tools" in result.stderr) == has_tools


def test_an_agent_has_to_be_named(throughline: Throughline) -> None:
    assert throughline("models", "check").exit_code == 2
