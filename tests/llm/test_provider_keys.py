from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, address_for, simple_request
from fakes.raw_http_server import EVENT_STREAM, Answer, error_answer, serve_raw
from throughline.assembly.models import models_config
from throughline.assembly.runtime import choose_embedder
from throughline.domain.errors import SettingInvalid, ThroughlineError
from throughline.domain.prompt import ModelParameters
from throughline.llm.providers import PLACEHOLDER_KEY, PROVIDERS, choose_key
from throughline.llm.registry import ModelRegistry
from throughline.settings import Settings, read_settings

KEYS = {
    "OPENAI_API_KEY": "sk-of-openai",
    "OPENAI_ADMIN_KEY": "sk-admin-of-openai",
    "ANTHROPIC_API_KEY": "sk-ant-of-anthropic",
    "ANTHROPIC_AUTH_TOKEN": "token-of-anthropic",
    "GOOGLE_API_KEY": "key-of-google",
    "GEMINI_API_KEY": "second-key-of-google",
    "GATEWAY_KEY": "key-of-the-gateway",
}
GOOGLE_SAYS_OK = Answer(
    ['data: {"candidates":[{"content":{"parts":[{"text":"ok"}],"role":"model"},"finishReason":"STOP"}]}\r\n\r\n'],
    content_type=EVENT_STREAM,
)
CALLS = [
    ("gpt-4o", OPENAI_SAYS_OK),
    ("anthropic:claude-test", ANTHROPIC_SAYS_OK),
    ("google_genai:gemini-test", GOOGLE_SAYS_OK),
]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


async def head_of_a_call(model: str, answer: Answer, api_key_env: str | None = None) -> str:
    registry = ModelRegistry(replace(CONFIG, read_variable=lambda name: KEYS.get(name, "")))
    async with serve_raw(answer) as server:
        chat_model = registry.get(model, address_for(model, server), api_key_env)
        async for _event in chat_model.stream(simple_request()):
            pass
        await registry.close()
    return server.heads[0]


@pytest.mark.parametrize(("model", "answer"), CALLS)
async def test_no_key_of_the_environment_reaches_a_server_at_another_address(model: str, answer: Answer) -> None:
    head = await head_of_a_call(model, answer)

    assert PLACEHOLDER_KEY in head
    assert not any(key in head for key in KEYS.values())


@pytest.mark.parametrize(("model", "answer"), CALLS)
async def test_a_server_gets_the_key_that_is_named_for_it_and_no_other(model: str, answer: Answer) -> None:
    head = await head_of_a_call(model, answer, "GATEWAY_KEY")

    assert [name for name, key in KEYS.items() if key in head] == ["GATEWAY_KEY"]


@pytest.mark.parametrize(("setting", "sent"), [("", PLACEHOLDER_KEY), ("GATEWAY_KEY", "key-of-the-gateway")])
async def test_a_server_of_the_settings_gets_the_key_that_a_setting_names(setting: str, sent: str) -> None:
    async with serve_raw(OPENAI_SAYS_OK, OPENAI_SAYS_OK) as server:
        settings = Settings(default_llm="any", default_llm_base_url=server.url, default_llm_api_key_env=setting)
        registry = ModelRegistry(models_config(settings))
        for model in (registry.get(""), registry.get("another", server.url)):
            async for _event in model.stream(simple_request()):
                pass
        await registry.close()

    assert all(f"authorization: bearer {sent}\r\n" in head.lower() for head in server.heads)


@pytest.mark.parametrize(("setting", "sent"), [("", PLACEHOLDER_KEY), ("GATEWAY_KEY", "key-of-the-gateway")])
async def test_an_embedding_server_gets_the_key_that_a_setting_names(setting: str, sent: str) -> None:
    vectors = Answer(['{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0]}],"model":"any"}'])
    async with serve_raw(vectors) as server:
        settings = Settings(embedding_model="any", embedding_base_url=server.url, embedding_api_key_env=setting)
        embedder = choose_embedder(settings)
        assert embedder is not None
        await embedder.embed(["a text"])
        await embedder.close()

    assert f"authorization: bearer {sent}\r\n" in server.heads[0].lower()


@pytest.mark.parametrize(
    ("provider", "address", "is_own"),
    [
        ("openai", None, True),
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "https://eu.api.openai.com/v1/", True),
        ("openai", "http://api.openai.com/v1", False),
        ("openai", "https://api.openai.com:8443/v1", False),
        ("openai", "https://api.openai.com.example.com/v1", False),
        ("openai", "https://user@example.com/api.openai.com", False),
        ("openai", "https://gateway.example.com/v1", True),
        ("openai", "https://gateway.example.com:444/v1", False),
        ("anthropic", "https://api.anthropic.com", True),
        ("anthropic", "https://gateway.example.com/v1", False),
        ("google_genai", "https://generativelanguage.googleapis.com", True),
        ("groq", "https://anywhere.example.com", False),
        ("ollama", "http://127.0.0.1:11434", True),
    ],
)
def test_the_environments_key_is_for_the_providers_own_address(
    provider: str, address: str | None, *, is_own: bool
) -> None:
    environment = {"OPENAI_BASE_URL": "https://gateway.example.com/v1"}

    key = choose_key(PROVIDERS[provider], address, None, lambda name: environment.get(name, ""))

    assert key == (None if is_own else PLACEHOLDER_KEY)


def test_a_named_variable_that_is_not_set_is_refused_with_what_to_do() -> None:
    with pytest.raises(SettingInvalid) as refused:
        ModelRegistry().get("any", "http://user:word@127.0.0.1:9/v1", "NO_SUCH_KEY")

    assert refused.value.detail == (
        "the key for http://127.0.0.1:9 is not set: set the variable NO_SUCH_KEY, or remove its name from the agent "
        "file (api_key_env) or the setting (…_API_KEY_ENV)"
    )


async def test_a_named_key_may_stand_in_the_file_of_settings(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FILED_KEY=key-of-the-file\n")

    assert models_config(read_settings()).read_variable("FILED_KEY") == "key-of-the-file"


@pytest.mark.parametrize("name", ["default_llm", "context_summary_model", "embedding"])
def test_a_named_key_needs_an_address_and_is_never_the_key_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"{name.upper()}_API_KEY_ENV"
    monkeypatch.setenv(variable, "GATEWAY_KEY")
    with pytest.raises(SettingInvalid, match=f"{variable} needs {name.upper()}_BASE_URL"):
        read_settings()

    monkeypatch.setenv(variable, "sk-of-openai")
    with pytest.raises(SettingInvalid, match="never the key itself") as refused:
        read_settings()
    assert "sk-of-openai" not in refused.value.detail


BASIC = b64encode(b"usr:pa55w0rd").decode()


async def test_secrets_of_the_agent_file_are_taken_out_of_what_the_provider_said() -> None:
    said = f"refused pa55w0rd, Basic {BASIC}, http://usr:pa55w0rd@host/v1, tsec-hunter2 pw and hunter three apples"
    given = ModelParameters(headers={"X-Team": "tsec-hunter2 pw"}, body={"team": {"names": ["hunter three apples"]}})
    registry = ModelRegistry(CONFIG)
    async with serve_raw(error_answer(400, {"error": {"message": said}})) as server:
        model = registry.get("gpt-4o", server.url.replace("http://", "http://usr:pa55w0rd@") + "/v1")
        with pytest.raises(ThroughlineError) as caught:
            _ = [event async for event in model.stream(replace(simple_request(), parameters=given))]
        await registry.close()

    message = caught.value.provider_message
    assert message.startswith("refused")
    assert not any(secret in message for secret in ("pa55w0rd", BASIC, "tsec-hunter2", "hunter three"))
