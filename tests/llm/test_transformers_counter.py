"""Counting with a model's own tokenizer, from a file or from the local Hugging Face cache, never from the network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from throughline.domain.errors import SettingInvalid
from throughline.llm.counters import PIECE_CHARACTERS, count_tokens, make_counter

PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. "
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokenizer that pads, truncates and frames as those of real models do."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    tokenizer.train_from_iterator([PROSE], BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(length=16)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_a_tokenizer_of_a_local_file_counts_whole_texts_and_nothing_else(tokenizer_file: Path) -> None:
    counter = make_counter(f"transformers:{tokenizer_file}")

    one, ten = counter.count(PROSE), counter.count(PROSE * 10)

    assert counter.name == f"transformers:{tokenizer_file}"
    assert counter.count("The") == 1
    assert one > 10
    assert ten == 10 * one
    assert count_tokens("", counter) == 0


def test_a_folder_with_a_tokenizer_will_do(tokenizer_file: Path) -> None:
    by_folder, by_file = (make_counter(f"transformers:{path}") for path in (tokenizer_file.parent, tokenizer_file))

    assert by_folder.count(PROSE) == by_file.count(PROSE)


@pytest.mark.parametrize("text", ["<s>", "a<s>b<s>", "\ud83d", "a\x00b", "持續的對話 😀"])
def test_special_tokens_and_any_character_count_as_plain_text(tokenizer_file: Path, text: str) -> None:
    assert make_counter(f"transformers:{tokenizer_file}").count(text) >= len(text)


def test_a_long_text_is_counted_in_pieces_of_the_same_sum(tokenizer_file: Path) -> None:
    counter = make_counter(f"transformers:{tokenizer_file}")
    times = 3 * PIECE_CHARACTERS // len(PROSE)

    counted = counter.count(PROSE * times)

    assert counted == pytest.approx(times * counter.count(PROSE), abs=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nobody/no-such-model", "/no/such/tokenizer.json", "nobody", "a b/c", "../.."])
def test_a_tokenizer_that_is_not_here_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(SettingInvalid, match=r"hf download .* or name the path of a tokenizer\.json"):
        make_counter(f"transformers:{name}")


def test_a_file_that_holds_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"not": "one"}')

    with pytest.raises(SettingInvalid, match="holds no tokenizer"):
        make_counter(f"transformers:{path}")


def test_a_name_without_tokenizer_is_refused() -> None:
    with pytest.raises(SettingInvalid, match="transformers:<name or path>"):
        make_counter("transformers")


@pytest.mark.slow
def test_a_model_of_the_local_cache_is_found_without_network(tokenizer_file: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--acme--small"
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    program = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from throughline.llm.counters import make_counter\n"
        f"print(make_counter('transformers:acme/small').count({PROSE!r}))\n"
    )

    shown = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HOME": str(tmp_path)},
    )

    assert int(shown.stdout) == make_counter(f"transformers:{tokenizer_file}").count(PROSE)
