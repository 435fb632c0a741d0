"""The window of a model of the registry: which servers are asked, and with which key."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from pydantic import Field, PrivateAttr

from fakes.model_calls import CONFIG
from fakes.model_servers import OLLAMA, OLLAMA_RUNNING, VLLM, serve_model_server
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.llm.context_windows import ModelServer, find_server
from throughline.llm.providers import PLACEHOLDER_KEY, parse_model_name
from throughline.llm.registry import ModelRegistry

KEYS = {"OPENAI_API_KEY": "sk-of-openai", "ANTHROPIC_API_KEY": "sk-ant", "GATEWAY_KEY": "key-of-the-gateway"}
MODEL = "Qwen/Qwen3-32B"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def registry() -> ModelRegistry:
    return ModelRegistry(replace(CONFIG, read_variable=lambda name: KEYS.get(name, "")))


@pytest.mark.parametrize(("api_key_env", "sent"), [(None, PLACEHOLDER_KEY), ("GATEWAY_KEY", "key-of-the-gateway")])
async def test_a_model_at_an_address_has_the_window_of_its_server(api_key_env: str | None, sent: str) -> None:
    models = registry()
    async with serve_model_server(VLLM) as server:
        model = models.get(MODEL, f"{server.url}/v1", api_key_env)
        before = model.window
        await model.ask_window()
        await models.close()

    assert before == ModelWindow(32_768, WindowOrigin.TABLE)
    assert model.window == ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
    assert model.context_limit == 40_960
    assert f"authorization: bearer {sent}\r\n" in server.heads[0].lower()
    assert "sk-of-openai" not in server.heads[0]


async def test_a_server_that_the_environment_names_is_asked_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    models = registry()
    async with serve_model_server(VLLM) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        model = models.get(f"openai:{MODEL}")
        await model.ask_window()
        await models.close()

    assert model.context_limit == 40_960
    assert "authorization: bearer sk-of-openai\r\n" in server.heads[0].lower()


async def test_a_server_that_is_down_leaves_what_the_name_says() -> None:
    models = registry()
    model = models.get("some-model", "http://127.0.0.1:1/v1")

    await model.ask_window()
    await models.close()

    assert model.window == ModelWindow(8192, WindowOrigin.UNKNOWN)


async def test_the_offline_model_has_no_server() -> None:
    model = ModelRegistry().get("offline")

    await model.ask_window()

    assert model.window == ModelWindow(32_768, WindowOrigin.TABLE)


class Wire(FakeListChatModel):
    """A model with the client of OpenAI's wire, as far as its address and key are read."""

    responses: list[str] = Field(default_factory=list)
    root_async_client: object = None


@dataclass
class Client:
    base_url: httpx.URL
    api_key: str = "a-key"


@pytest.mark.parametrize(
    "address",
    [
        "https://api.openai.com/v1/",
        "http://api.openai.com:8080/v1",
        "https://eu.api.openai.com/v1",
        "https://api.anthropic.com/v1/",
        "https://generativelanguage.googleapis.com/v1beta/openai/",
    ],
)
def test_a_providers_own_server_is_never_asked(address: str) -> None:
    model = Wire(root_async_client=Client(httpx.URL(address)))

    assert find_server(parse_model_name("openai:gpt-4o", None), model) is None


@pytest.mark.parametrize("name", ["openai:gpt-4o", "anthropic:claude-test", "google_genai:gemini-test"])
async def test_a_model_at_its_providers_address_has_the_window_of_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "key")
    models = registry()
    model = models.get(name)

    await model.ask_window()
    await models.close()

    assert model.window.origin in {WindowOrigin.PROFILE, WindowOrigin.TABLE}


@dataclass
class OllamaClient:
    _client: httpx.AsyncClient = field(
        default_factory=lambda: httpx.AsyncClient(
            base_url="http://127.0.0.1:11434", headers={"Authorization": "Bearer k"}
        )
    )


class OllamaWire(FakeListChatModel):
    """A model with the client of LangChain's Ollama package."""

    responses: list[str] = Field(default_factory=list)
    _async_client: OllamaClient = PrivateAttr(default_factory=OllamaClient)


def test_ollamas_own_package_is_asked_at_its_client_address() -> None:
    found = find_server(parse_model_name("ollama:qwen2.5:7b", None), OllamaWire())

    assert found == ModelServer("http://127.0.0.1:11434", "qwen2.5:7b", "k")


async def test_ollama_behind_the_openai_wire_is_known_once_the_model_is_loaded() -> None:
    models = registry()
    async with serve_model_server({**OLLAMA, "/api/ps": OLLAMA_RUNNING}) as server:
        model = models.get("qwen2.5:7b", f"{server.url}/v1")
        await model.ask_window()
        await models.close()

    assert model.window == ModelWindow(16_384, WindowOrigin.SERVER, "Ollama")


async def test_an_address_is_shown_without_credentials() -> None:
    models = registry()
    shown = {
        address: models.get("some-model", address).address
        for address in ("http://anna:s3cret@127.0.0.1:8000/v1/?key=s3cret", "http://[::1]:8000/v1")
    }
    own = models.get("gpt-4o").address
    await models.close()

    assert list(shown.values()) == ["http://127.0.0.1:8000/v1", "http://[::1]:8000/v1"]
    assert not own
