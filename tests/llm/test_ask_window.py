"""A model's server is asked for its window: each server's real answer, and answers that say nothing."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.model_servers import (
    LITELLM,
    LLAMA_CPP,
    LM_STUDIO,
    OLLAMA,
    OLLAMA_RUNNING,
    OLLAMA_SHOWN,
    OPENROUTER,
    VLLM,
    RouteAnswer,
    serve_model_server,
)
from fakes.waiting import HANG_SECONDS, ManualClock
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.llm.context_windows import (
    ANSWERED_SECONDS,
    MAX_BODY_BYTES,
    UNANSWERED_SECONDS,
    KnownWindow,
    ModelServer,
    ServerWindow,
    ask_window,
)

Routes = dict[str, Any]


async def ask(routes: Routes, model: str, path: str = "/v1") -> ServerWindow | None:
    async with serve_model_server(routes) as double:
        return await ask_window(ModelServer(f"{double.url}{path}", model, "a-key"), seconds=HANG_SECONDS)


def shown(**changes: object) -> Routes:
    return {**OLLAMA, "/api/show": {**OLLAMA_SHOWN, **changes}}


@pytest.mark.parametrize(
    ("routes", "model", "path", "window"),
    [
        (VLLM, "Qwen/Qwen3-32B", "/v1", ServerWindow(40_960, "vLLM")),
        (VLLM, "Qwen/Qwen3-32B", "/v1/", ServerWindow(40_960, "vLLM")),
        (VLLM, "support-adapter", "/v1", ServerWindow(40_960, "vLLM")),
        (LLAMA_CPP, "gpt-oss-20b", "/v1", ServerWindow(12_288, "llama.cpp")),
        (LLAMA_CPP, "any-name", "", ServerWindow(12_288, "llama.cpp")),
        (LM_STUDIO, "meta-llama-3.1-8b-instruct", "/v1", ServerWindow(20_000, "LM Studio")),
        (LM_STUDIO, "qwen2-vl-7b-instruct", "/v1", ServerWindow(4096, "LM Studio", is_assumed=True)),
        (OPENROUTER, "deepseek/deepseek-chat-v3.1", "/api/v1", ServerWindow(131_072, "OpenRouter")),
        (OPENROUTER, "deepseek/deepseek-chat-v3.1:nitro", "/api/v1", ServerWindow(131_072, "OpenRouter")),
        (OPENROUTER, "openai/gpt-4", "/api/v1", ServerWindow(8191, "OpenRouter")),
        (LITELLM, "house-model", "/v1", ServerWindow(100_000, "LiteLLM")),
        (LITELLM, "house-model", "", ServerWindow(100_000, "LiteLLM")),
    ],
)
async def test_each_server_is_recognised_by_its_answer(
    routes: Routes, model: str, path: str, window: ServerWindow
) -> None:
    assert await ask(routes, model, path) == window


@pytest.mark.parametrize(
    ("routes", "window"),
    [
        (OLLAMA, ServerWindow(4096, "Ollama", is_assumed=True)),
        ({**OLLAMA, "/api/ps": OLLAMA_RUNNING}, ServerWindow(16_384, "Ollama")),
        (shown(parameters='stop "<|im_end|>"\nnum_ctx                        8192'), ServerWindow(8192, "Ollama")),
        (shown(parameters="num_ctx 8192") | {"/api/ps": OLLAMA_RUNNING}, ServerWindow(8192, "Ollama")),
        (shown(parameters="num_ctx 131072"), ServerWindow(32_768, "Ollama")),
        (shown(model_info={"gemma.context_length": 2048}), ServerWindow(2048, "Ollama", is_assumed=True)),
        (shown(remote_host="https://ollama.com:443", remote_model="qwen2.5"), ServerWindow(32_768, "Ollama")),
    ],
    ids=["not loaded", "loaded", "num_ctx", "num_ctx before loaded", "trained for less", "small", "remote"],
)
async def test_ollamas_window_is_the_one_it_runs_with_and_not_the_trained_one(
    routes: Routes, window: ServerWindow
) -> None:
    assert await ask(routes, "qwen2.5:7b") == window


async def test_a_model_loaded_by_ollama_is_found_without_its_tag() -> None:
    running = {"models": [{**OLLAMA_RUNNING["models"][0], "name": "qwen2.5:latest", "model": "qwen2.5:latest"}]}

    assert await ask({**OLLAMA, "/api/ps": running}, "qwen2.5") == ServerWindow(16_384, "Ollama")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {"data": None},
        {"data": [{"id": "m"}]},
        {"data": [{"id": "m", "max_model_len": value} for value in ("4096", True, -1, 0, 10**12, 4096.5, None)]},
        {"data": [{"id": "another", "max_model_len": 4096}]},
        RouteAnswer(b"<html>", 200),
        RouteAnswer(b'{"data": [', 200),
        RouteAnswer(b"[" * 100_000, 200),
        RouteAnswer(b"", 401),
        RouteAnswer(b"", 500),
        RouteAnswer(json.dumps(VLLM["/v1/models"]).encode(), headers=(("content-encoding", "gzip"),)),
        RouteAnswer(json.dumps({"data": [{"id": "m", "max_model_len": 4096, "x": "x" * MAX_BODY_BYTES}]}).encode()),
    ],
)
async def test_an_answer_that_says_nothing_is_none(answer: object) -> None:
    assert await ask({"/v1/models": answer}, "m") is None


@pytest.mark.parametrize("path", ["/props", "/api/show", "/api/ps", "/api/v0/models", "/model/info"])
async def test_a_route_with_an_odd_answer_is_passed_over(path: str) -> None:
    odd_answers: list[Any] = [
        None,
        [],
        {"data": [None]},
        {"models": 1},
        {"default_generation_settings": 1},
        {"model_info": 1},
    ]
    for odd in odd_answers:
        assert await ask({path: odd}, "m") is None


async def test_a_router_of_llama_cpp_without_a_model_says_nothing() -> None:
    assert await ask({"/props": {"default_generation_settings": {"n_ctx": 0}, "role": "router"}}, "m") is None


async def test_the_key_goes_to_the_models_address_with_every_question() -> None:
    async with serve_model_server({}) as double:
        await ask_window(ModelServer(f"{double.url}/v1", "qwen2.5:7b", "a-key"), seconds=HANG_SECONDS)

    assert sorted(double.asked) == ["/api/ps", "/api/show", "/api/v0/models", "/model/info", "/props", "/v1/models"]
    assert all("authorization: bearer a-key\r\n" in head.lower() for head in double.heads)
    assert b'{"model":"qwen2.5:7b"}' in double.bodies


async def test_without_a_key_none_is_sent() -> None:
    async with serve_model_server(VLLM) as double:
        await ask_window(ModelServer(f"{double.url}/v1", "Qwen/Qwen3-32B"))

    assert double.asked == ["/v1/models"]
    assert "authorization" not in double.heads[0].lower()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    async with serve_model_server(VLLM) as elsewhere:
        moved = RouteAnswer(status=status, headers=(("location", f"{elsewhere.url}/v1/models"),))
        paths = ("/v1/models", "/api/show", "/api/ps", "/props", "/api/v0/models", "/model/info")

        assert await ask(dict.fromkeys(paths, moved), "Qwen/Qwen3-32B") is None
        assert elsewhere.asked == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/v1", "http://[::1", "no-address", "http://" + "x" * 300])
async def test_a_server_that_is_down_or_has_no_address_is_none(address: str) -> None:
    assert await ask_window(ModelServer(address, "m")) is None


async def test_a_server_that_does_not_answer_is_left_after_the_time_limit() -> None:
    async with serve_model_server({"/v1/models": RouteAnswer(hangs=True)}) as double:
        assert await ask_window(ModelServer(f"{double.url}/v1", "m"), seconds=0.1) is None


async def test_one_route_that_hangs_does_not_hide_the_answer_of_another() -> None:
    assert await ask({**LLAMA_CPP, "/model/info": RouteAnswer(hangs=True)}, "m") == ServerWindow(12_288, "llama.cpp")


BY_NAME = ModelWindow(8192, WindowOrigin.UNKNOWN)
KNOWN_VLLM = ServerWindow(40_960, "vLLM")
NOT_LOADED = ServerWindow(4096, "Ollama", is_assumed=True)
LOADED = ServerWindow(16_384, "Ollama")


@dataclass
class ScriptedServer:
    """Gives its answers in order, each once `gate` is open."""

    answers: list[ServerWindow | None | Exception]
    times_asked: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> ServerWindow | None:
        self.times_asked += 1
        await self.gate.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def known(server: ScriptedServer, clock: ManualClock, by_name: ModelWindow = BY_NAME) -> KnownWindow:
    server.gate.set()
    return KnownWindow("openai:m", by_name, server.ask, monotonic=clock.monotonic)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_model_whose_server_is_not_asked_keeps_the_window_of_its_name() -> None:
    window = KnownWindow("openai:m", BY_NAME)

    await window.refresh()

    assert window.window == BY_NAME
    await window.close()


async def test_the_first_question_is_waited_for_and_asked_once() -> None:
    server = ScriptedServer([KNOWN_VLLM])
    window = known(server, ManualClock())

    await asyncio.gather(window.refresh(), window.refresh(), window.refresh())

    assert window.window == ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
    assert server.times_asked == 1


async def test_the_server_comes_before_profile_and_table() -> None:
    window = known(ScriptedServer([KNOWN_VLLM]), ManualClock(), ModelWindow(128_000, WindowOrigin.PROFILE))

    await window.refresh()

    assert window.window.tokens == 40_960


@pytest.mark.parametrize("nothing", [None, RuntimeError("a mistake of ours")])
async def test_a_server_that_says_nothing_leaves_the_window_of_the_name(nothing: Exception | None) -> None:
    window = known(ScriptedServer([nothing]), ManualClock())

    with capture_logs() as logs:
        await window.refresh()

    assert window.window == BY_NAME
    assert len(logs) == (nothing is not None)


async def test_a_later_question_runs_in_the_background() -> None:
    server, clock = ScriptedServer([None, KNOWN_VLLM]), ManualClock()
    window = known(server, clock)
    await window.refresh()
    server.gate.clear()

    clock.advance(UNANSWERED_SECONDS - 1)
    await window.refresh()
    clock.advance(1)
    await window.refresh()
    await window.refresh()
    await settle()
    asked, before = server.times_asked, window.window
    server.gate.set()
    with capture_logs() as logs:
        await settle()

    assert (asked, before) == (2, BY_NAME)
    assert window.window == ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
    assert [log["event"] for log in logs] == ["model window changed"]


async def test_a_server_that_answered_is_asked_again_rarely() -> None:
    server, clock = ScriptedServer([KNOWN_VLLM, ServerWindow(20_000, "vLLM"), None]), ManualClock()
    window = known(server, clock)
    await window.refresh()

    for _ in range(2):
        clock.advance(ANSWERED_SECONDS - 1)
        await window.refresh()
        clock.advance(1)
        await window.refresh()
        await settle()

    assert server.times_asked == 3
    assert window.window == ModelWindow(20_000, WindowOrigin.SERVER, "vLLM")


async def test_an_assumed_window_is_unknown_and_replaced_by_a_reported_one() -> None:
    clock = ManualClock()
    window = known(ScriptedServer([NOT_LOADED, LOADED, NOT_LOADED]), clock, ModelWindow(32_768, WindowOrigin.TABLE))
    windows = []

    for _ in range(3):
        await window.refresh()
        await settle()
        windows.append(window.window)
        clock.advance(ANSWERED_SECONDS)

    loaded = ModelWindow(16_384, WindowOrigin.SERVER, "Ollama")
    assert windows == [ModelWindow(4096, WindowOrigin.UNKNOWN, "Ollama"), loaded, loaded]


async def test_a_question_ends_when_the_model_is_closed() -> None:
    server = ScriptedServer([KNOWN_VLLM])
    window = KnownWindow("openai:m", BY_NAME, server.ask)
    waiting = asyncio.create_task(window.refresh())
    await settle()

    await window.close()

    assert server.times_asked == 1
    with pytest.raises(asyncio.CancelledError):
        await waiting
