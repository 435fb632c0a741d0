import re
import subprocess
import sys
from dataclasses import replace

import pytest
from langchain.chat_models import base as langchain_models

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, hear, simple_request
from fakes.raw_http_server import serve_raw
from throughline.domain.errors import SettingInvalid
from throughline.domain.prompt import ModelRequest, ToolSpec
from throughline.llm.context_windows import WINDOWS, find_window
from throughline.llm.providers import PROVIDERS, as_setting, parse_model_name
from throughline.llm.registry import ModelRegistry, ModelsConfig, inherited_base_url

AZURE = ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", *AZURE):
        monkeypatch.delenv(name, raising=False)


def test_the_default_model_is_offline_and_needs_no_key() -> None:
    model = ModelRegistry().get("")

    assert model.name == model.calibration_key == "offline"


async def test_an_empty_name_is_the_default_model_at_the_default_address() -> None:
    config = ModelsConfig(default_model="some-local-model", default_base_url="http://127.0.0.1:9/v1")
    registry = ModelRegistry(config)

    model = registry.get("")

    assert model.name == "openai:some-local-model"
    assert model.context_limit == 8192
    await registry.close()


async def test_a_model_is_made_once() -> None:
    registry = ModelRegistry()

    first, second = (registry.get("qwen2.5:7b", "http://127.0.0.1:9/v1") for _ in range(2))
    other = registry.get("qwen2.5:7b", "http://127.0.0.1:8/v1")

    assert first is second
    assert other is not first
    assert first.name == other.name == "openai:qwen2.5:7b"
    assert other.calibration_key == "openai:qwen2.5:7b@http://127.0.0.1:8/v1"
    await registry.close()


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("gpt-4o", "OPENAI_API_KEY"),
        ("openai:gpt-4o", "OPENAI_API_KEY"),
        ("claude-test", "ANTHROPIC_API_KEY"),
        ("anthropic:claude-test", "ANTHROPIC_API_KEY"),
        ("gemini-test", "GOOGLE_API_KEY"),
        ("azure_openai:gpt-4o", "AZURE_OPENAI_API_KEY"),
    ],
)
def test_a_model_without_its_key_is_refused_by_the_variables_name(model: str, variable: str) -> None:
    with pytest.raises(SettingInvalid, match=variable):
        ModelRegistry().get(model)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "OPENAI_API_VERSION"),
        ({"OPENAI_API_VERSION": "2024-10-21"}, "AZURE_OPENAI_ENDPOINT"),
    ],
)
def test_azure_without_a_variable_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], missing: str
) -> None:
    for name, value in {"AZURE_OPENAI_API_KEY": "key", **given}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SettingInvalid, match=f"set {missing}, or choose"):
        ModelRegistry().get("azure_openai:gpt-4o")


@pytest.mark.parametrize(
    ("model", "said", "named"),
    [
        ("bedrock:x", "Service error: You must specify a region.", "set AWS_DEFAULT_REGION or AWS_REGION"),
        ("anthropic_bedrock:x", "Set the `AWS_REGION` environment variable", "set AWS_REGION"),
        ("google_vertexai:x", "Your default credentials were not found.", "set GOOGLE_APPLICATION_CREDENTIALS"),
        ("ibm:x", "odd", "variables that its package reads: WATSONX_APIKEY, WATSONX_PROJECT_ID"),
        ("litellm:x", "odd", "check its name and options$"),
    ],
)
def test_the_error_of_a_package_is_told_by_the_variables_it_misses(model: str, said: str, named: str) -> None:
    assert re.search(named, as_setting(parse_model_name(model, None), "", ValueError(said)).detail)


@pytest.mark.parametrize(
    ("model", "package"), [("mistralai:mistral-large", "langchain-mistralai"), ("ollama:llama3", "langchain-ollama")]
)
def test_a_model_without_its_package_is_refused_with_what_to_install(model: str, package: str) -> None:
    with pytest.raises(SettingInvalid, match=f"pip install {package}"):
        ModelRegistry().get(model)


@pytest.mark.slow
def test_without_the_openai_package_its_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['langchain_openai'] = None\n"
        "from throughline.llm.registry import ModelRegistry\n"
        "try:\n    ModelRegistry().get('gpt-4o')\n"
        "except Exception as error:\n    print(error)\n"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "pip install 'throughline[openai]'" in shown.stdout


@pytest.mark.parametrize("model", ["no-such-family", "nobody:gpt-4o", ":"])
def test_a_name_of_no_known_provider_is_refused_with_what_is_allowed(model: str) -> None:
    with pytest.raises(SettingInvalid, match="provider:model"):
        ModelRegistry().get(model)


@pytest.mark.parametrize(
    ("name", "base_url", "full"),
    [
        ("gpt-4o", None, "openai:gpt-4o"),
        ("o3-mini", None, "openai:o3-mini"),
        ("gemini-2.5-pro", None, "google_genai:gemini-2.5-pro"),
        ("google-genai:gemini-2.5-pro", None, "google_genai:gemini-2.5-pro"),
        ("meta-llama/Llama-3.1-8B", "http://x/v1", "openai:meta-llama/Llama-3.1-8B"),
        ("qwen2.5:7b", "http://x/v1", "openai:qwen2.5:7b"),
        ("anthropic:claude-test", "http://x", "anthropic:claude-test"),
    ],
)
def test_a_models_name_is_taken_apart(name: str, base_url: str | None, full: str) -> None:
    assert parse_model_name(name, base_url).full == full


def test_our_providers_are_those_of_init_chat_model() -> None:
    assert set(PROVIDERS) == set(langchain_models._BUILTIN_PROVIDERS)  # noqa: SLF001  # no public list


async def test_openais_own_models_have_a_known_tokenizer_and_others_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    registry = ModelRegistry()

    known, unknown = registry.get("gpt-4o"), registry.get("qwen2.5:7b", "http://127.0.0.1:9/v1")

    assert (known.has_known_tokenizer, known.context_limit) == (True, 128_000)
    assert (unknown.has_known_tokenizer, unknown.context_limit) == (False, 32_768)
    await registry.close()


@pytest.mark.slow
def test_importing_the_package_reads_no_provider() -> None:
    program = (
        "import sys; import throughline.llm.registry\n"
        "print([name for name in ('openai', 'anthropic', 'google.genai') if name in sys.modules])"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("model", "default_model", "address"),
    [
        ("openai:small", "openai:big", "http://local/v1"),
        ("small", "openai:big", "http://local/v1"),
        ("openai:small", "qwen2.5:7b", "http://local/v1"),
        ("anthropic:claude-haiku", "anthropic:claude-opus", "http://local/v1"),
        ("anthropic:claude-haiku", "openai:big", None),
        ("claude-haiku", "openai:big", None),
        ("offline", "openai:big", None),
        ("openai:small", "offline", None),
    ],
)
def test_a_second_model_of_one_provider_lives_beside_the_default_one(
    model: str, default_model: str, address: str | None
) -> None:
    beside = inherited_base_url(model, default_model=default_model, default_base_url="http://local/v1")

    assert beside == address
    assert inherited_base_url(model, default_model=default_model, default_base_url="") is None


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [("gpt-4oo", "gpt-4o"), ("openai:gpt-4oo", "gpt-4o"), ("gpt-42", "gpt-4"), ("claudee-3", "claude")],
)
def test_a_name_that_goes_on_within_the_word_is_told_with_its_neighbour(name: str, neighbour: str) -> None:
    assert find_window(name).neighbour == neighbour


@pytest.mark.parametrize(
    "name",
    [
        *WINDOWS,
        "gpt-4o-mini",
        "gpt-4o-2024-11-20",
        "gemma2:9b",
        "gemma3n:e4b",
        "glm-4v",
        "qwen2",
        "o3-pro",
        "mistralai/Ministral-8B-Instruct",
        "mistralai/unheard-of-7b",
        "ft:gpt-4o:acme",
        "bedrock:anthropic.claude-3-5-sonnet",
        "meta-llama/Llama-3.1-8B-Instruct",
    ],
)
def test_a_version_or_variant_of_a_family_is_no_misspelling(name: str) -> None:
    assert find_window(name).neighbour == ""


TOOL = ToolSpec("lookup", "Looks up.", {"type": "object", "properties": {"q": {"type": "string"}}})
OFFERED = replace(simple_request(), tools=(TOOL,))
FORBIDDEN = replace(OFFERED, may_call_tools=False)


async def sent_to_openai_itself(request: ModelRequest) -> dict[str, object]:
    """What OpenAI is sent: no address is given, so that it is the one the SDK knows."""
    registry = ModelRegistry(CONFIG)
    async with serve_raw(OPENAI_SAYS_OK) as server:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OPENAI_API_KEY", "test-key")
            environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            model = registry.get("openai:gpt-4o")
        async for _ in model.stream(request):
            pass
        await registry.close()
        return server.requests[0]


async def test_openai_is_sent_the_same_tools_and_told_not_to_call_them() -> None:
    offered, forbidden = await sent_to_openai_itself(OFFERED), await sent_to_openai_itself(FORBIDDEN)

    assert forbidden == {**offered, "tool_choice": "none"}


async def test_compatible_servers_are_not_sent_tools_they_might_call_all_the_same() -> None:
    offered = await hear(OPENAI_SAYS_OK, request=OFFERED)
    forbidden = await hear(OPENAI_SAYS_OK, request=FORBIDDEN)

    assert forbidden.sent == {name: value for name, value in offered.sent.items() if name != "tools"}
    assert "tools" in offered.sent


async def test_anthropic_is_sent_the_same_tools_and_told_not_to_call_them() -> None:
    offered = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", OFFERED)
    forbidden = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", FORBIDDEN)

    assert forbidden.sent == {**offered.sent, "tool_choice": {"type": "none"}}
