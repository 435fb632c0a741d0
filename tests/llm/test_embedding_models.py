"""Embedding models over a real socket: what is sent, what comes back, and what each failure is called."""

from collections.abc import AsyncIterator

import pytest

from fakes.provider_double import ProviderDouble
from fakes.provider_double.embeddings import EmbeddingFailure, embed
from fakes.waiting import HANG_SECONDS
from throughline.assembly.runtime import choose_embedder
from throughline.domain.errors import (
    ContextOverflow,
    ModelQuotaExhausted,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
    SettingInvalid,
    ThroughlineError,
)
from throughline.llm.registry import EmbeddingConfig, LangChainEmbedder, make_embedder
from throughline.settings import Settings


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "COHERE_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def embedder(provider_double: ProviderDouble) -> AsyncIterator[LangChainEmbedder]:
    made = make_embedder(EmbeddingConfig("some-model", provider_double.url, timeout_seconds=HANG_SECONDS))
    yield made
    await made.close()


async def test_texts_go_out_as_they_are_and_come_back_as_vectors_in_their_order(
    embedder: LangChainEmbedder, provider_double: ProviderDouble
) -> None:
    vectors = await embedder.embed(["a cat", "a car", "<|endoftext|>"])

    assert embedder.model == "openai:some-model"
    assert provider_double.embeddings.requests == [("a cat", "a car", "<|endoftext|>")]
    assert vectors[1] == pytest.approx(tuple(embed("a car", 64)))
    assert {len(vector) for vector in vectors} == {64}


async def test_dimensions_are_asked_for_where_they_are_set(provider_double: ProviderDouble) -> None:
    embedder = make_embedder(EmbeddingConfig("openai:some-model", provider_double.url, dimensions=12))

    (vector,) = await embedder.embed(["a cat"])
    await embedder.close()

    assert len(vector) == 12


async def test_of_a_text_too_long_for_the_model_its_beginning_is_embedded(
    embedder: LangChainEmbedder, provider_double: ProviderDouble
) -> None:
    provider_double.embeddings.max_tokens = 40
    long = "word " * 100

    await embedder.embed([long])

    assert provider_double.embeddings.requests[-1] == (long[:125],)
    with pytest.raises(ContextOverflow):
        await embedder.embed(["short", long])


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("down", ModelUnavailable),
        ("quota", ModelQuotaExhausted),
        ("nonsense", ModelUnavailable),
    ],
)
async def test_each_failure_is_one_of_ours_asked_once_and_says_nothing_of_the_text(
    embedder: LangChainEmbedder, provider_double: ProviderDouble, failure: EmbeddingFailure, error: type[Exception]
) -> None:
    provider_double.embeddings.failure = failure

    with pytest.raises(error) as caught:
        await embedder.embed(["a secret"])

    assert isinstance(caught.value, ThroughlineError)
    assert "secret" not in caught.value.detail
    assert len(provider_double.embeddings.requests) == 1


@pytest.mark.slow
async def test_a_model_that_does_not_answer_is_given_up(provider_double: ProviderDouble) -> None:
    provider_double.embeddings.failure = "hang"
    impatient = make_embedder(EmbeddingConfig("some-model", provider_double.url, timeout_seconds=1.0))

    with pytest.raises(ModelTimeout):
        await impatient.embed(["a secret"])

    await impatient.close()
    assert len(provider_double.embeddings.requests) == 1


async def test_a_text_the_provider_declines_is_told_apart(
    embedder: LangChainEmbedder, provider_double: ProviderDouble
) -> None:
    provider_double.embeddings.refused_word = "poison"

    with pytest.raises(ModelRefused):
        await embedder.embed(["poison"])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("openai:text-embedding-3-small", "OPENAI_API_KEY"),
        ("nonsense", "nonsense"),
        ("offline", "offline"),
        ("anthropic:claude", "no embedding models"),
        ("cohere:embed-v4", "pip install langchain-cohere"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_in_a_sentence(model: str, said: str) -> None:
    with pytest.raises(SettingInvalid, match="EMBEDDING_MODEL") as caught:
        choose_embedder(Settings(embedding_model=model))

    assert said in caught.value.detail


def test_dimensions_are_refused_for_models_that_cannot_be_asked_for_them() -> None:
    with pytest.raises(SettingInvalid, match="EMBEDDING_DIMENSIONS"):
        choose_embedder(Settings(embedding_model="cohere:embed-v4", embedding_dimensions=8))


def test_no_model_is_the_default() -> None:
    assert choose_embedder(Settings()) is None
