"""A model's server is asked for its window: each server's real answer, and answers that say nothing."""

import json
from typing import Any

import pytest

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
from fakes.waiting import HANG_SECONDS
from throughline.llm.ask_window import MAX_BODY_BYTES, ModelServer, ServerWindow, ask_window

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
