"""What spans are called, and which provider they name, by OpenTelemetry's conventions."""

import pytest

from fakes.model_calls import simple_request
from throughline.domain.prompt import ModelParameters, ModelRequest, Prompt
from throughline.domain.usage_report import CallPurpose
from throughline.ports.tracing import EmbeddingPart, ModelCallPart
from throughline.tracing.attributes import TraceContext, describe

TRACE = TraceContext("a session", with_texts=False)


def call(model: str, address: str = "", request: ModelRequest | None = None) -> ModelCallPart:
    return ModelCallPart(model, address, CallPurpose.ANSWER, request or simple_request())


@pytest.mark.parametrize(
    ("model", "name", "provider"),
    [
        ("anthropic:claude-sonnet", "chat claude-sonnet", "anthropic"),
        ("google_genai:gemini-pro", "chat gemini-pro", "gcp.gemini"),
        ("mistralai:small", "chat small", "mistral_ai"),
        ("openai:qwen2.5:7b", "chat qwen2.5:7b", "openai"),
        ("offline", "chat offline", "offline"),
    ],
)
def test_a_model_call_is_named_by_its_model_and_has_its_provider(model: str, name: str, provider: str) -> None:
    described = describe(call(model), TRACE)

    assert (described.name, described.attributes["gen_ai.provider.name"]) == (name, provider)


def test_a_model_call_says_its_server_and_its_parameters() -> None:
    parameters = ModelParameters(temperature=0.5, seed=1, headers={"x-key": "hidden"})
    request = ModelRequest(Prompt("", ()), (), 10, parameters=parameters)

    described = describe(call("openai:small", "http://10.0.0.1:8080/v1", request), TRACE)

    assert described.attributes["server.address"] == "10.0.0.1"
    assert described.attributes["server.port"] == 8080
    assert described.attributes["gen_ai.request.temperature"] == 0.5
    assert "gen_ai.request.top_p" not in described.attributes
    assert "hidden" not in str(described)


def test_a_request_to_the_embedding_model_is_a_span_of_its_own_kind() -> None:
    described = describe(EmbeddingPart("openai:text-embedding-3-small"), TRACE)

    assert described.name == "embeddings text-embedding-3-small"
    assert described.attributes["gen_ai.operation.name"] == "embeddings"
