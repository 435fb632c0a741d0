import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, ToolCallChunk
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from fakes.growth import FACTOR, grows_linearly
from fakes.provider_double.counting import COUNTINGS, TEXTS, play
from fakes.waiting import HANG_SECONDS
from throughline.context.measure import count_message
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import Role
from throughline.domain.prompt import PromptMessage
from throughline.execution.call_plugin import call_plugin
from throughline.execution.error_boundary import Outcome
from throughline.llm.assemble_answer import MOST_CALLS, AnswerAssembly
from throughline.llm.counters import (
    PIECE_CHARACTERS,
    SHIPPED,
    CharsCounter,
    TiktokenCounter,
    count_piece,
    import_counter,
    load_encoding,
    make_counter,
    warm_counter,
)

PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. " * 20
CJK = "持續的對話需要一個不會忘記任何事情的系統。" * 20
CODE = "def add(left: int, right: int) -> int:\n    return left + right\n\n" * 20
EMOJI = "😀🎉🚀✨" * 50


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("tiktoken", "hello world", 2),
        ("tiktoken:cl100k_base", "antidisestablishmentarianism", 6),
        ("tiktoken:o200k_base", "hello world", 2),
    ],
)
def test_known_texts_have_their_known_counts(name: str, text: str, tokens: int) -> None:
    assert make_counter(name).count(text) == tokens


def test_a_counters_name_says_its_encoding() -> None:
    assert make_counter("tiktoken").name == "tiktoken:cl100k_base"


@pytest.mark.parametrize("text", ["<|endoftext|>", "a<|fim_prefix|>b", "<|im_start|>system"])
def test_special_tokens_are_plain_text(text: str) -> None:
    encoding = load_encoding("cl100k_base")

    assert make_counter("tiktoken").count(text) > 3
    assert encoding.decode(encoding.encode_ordinary(text)) == text


@pytest.mark.parametrize("name", ["tiktoken", "tiktoken:o200k_base", "chars"])
@given(text=st.text(st.characters(codec=None), max_size=200))
def test_any_text_can_be_counted_lone_surrogates_too(name: str, text: str) -> None:
    counter = make_counter(name)

    assert counter.count(text) >= (1 if text else 0)


@pytest.mark.parametrize("name", sorted(SHIPPED))
@given(text=st.text(max_size=300))
def test_tokens_are_never_more_than_utf_8_bytes(name: str, text: str) -> None:
    assert TiktokenCounter(name).count(text) <= len(text.encode())


@pytest.mark.slow
def test_hostile_text_is_counted_in_linear_time() -> None:
    counter = make_counter("tiktoken")

    assert grows_linearly(counter.count, lambda size: "a" * size, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", sorted(SHIPPED))
@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\u00a0"])
def test_a_million_blanks_in_a_row_can_be_counted(encoding: str, blank: str) -> None:
    assert 1000 < TiktokenCounter(encoding).count("x" + blank * 1_000_000 + "x") <= 1_000_002


@pytest.mark.parametrize("text", [PROSE, CJK, CODE, EMOJI, "a" * 1000, "0123456789" * 100])
@pytest.mark.parametrize("encoding", sorted(SHIPPED))
def test_a_text_counted_in_pieces_has_next_to_the_same_count(encoding: str, text: str) -> None:
    long = text * (3 * PIECE_CHARACTERS // len(text))
    truth = len(load_encoding(encoding).encode_ordinary(long))

    assert truth <= TiktokenCounter(encoding).count(long) <= truth + 12


def test_what_the_tokenizer_cannot_take_is_estimated() -> None:
    class PanicException(BaseException):  # tiktoken's Rust side has no other name for it
        pass

    def panic(_text: str) -> list[int]:
        raise PanicException

    def interrupt(_text: str) -> list[int]:
        raise KeyboardInterrupt

    assert count_piece("hello world", panic) == CharsCounter().count("hello world")
    with pytest.raises(KeyboardInterrupt):
        count_piece("hello world", interrupt)


@pytest.mark.parametrize("text", [PROSE, CJK, CODE, EMOJI])
@pytest.mark.parametrize("encoding", sorted(SHIPPED))
def test_the_estimate_from_characters_is_not_below_the_truth(text: str, encoding: str) -> None:
    truth = TiktokenCounter(encoding).count(text)

    assert truth <= CharsCounter().count(text) <= 4 * truth


@pytest.mark.slow
def test_counting_needs_no_network_and_no_environment() -> None:
    program = (
        "import os, socket\n"
        "def refuse(*args, **kwargs): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "os.environ['TIKTOKEN_CACHE_DIR'] = '/nonexistent'\n"
        "from throughline.llm.counters import make_counter\n"
        "print(make_counter('tiktoken').count('hello world'))\n"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "2"


def test_our_encoding_is_tiktokens_own() -> None:
    encoding = load_encoding("cl100k_base")

    assert isinstance(encoding, tiktoken.Encoding)
    assert encoding.n_vocab == 100_256


async def test_a_counter_is_warmed_off_the_loop() -> None:
    counter = make_counter("tiktoken")

    await warm_counter(counter)

    assert counter.count("warm") == 1


def test_a_function_of_the_operator_counts() -> None:
    counter = make_counter("fakes.own_counters:count_words")

    assert (counter.name, counter.count("one two three")) == ("fakes.own_counters:count_words", 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "use tiktoken"),
        ("words", "use tiktoken"),
        ("tiktoken:p50k_base", "cl100k_base, o200k_base"),
        ("no_such_module:count", "there is no module 'no_such_module'"),
        ("fakes.own_counters:no_such_function", "has no attribute 'no_such_function'"),
        ("fakes.own_counters:NOT_CALLABLE", "no function"),
        ("fakes.broken_module:count", "importing fakes.broken_module failed"),
        ("fakes.own_counters:returns_text", r"returned ''.*must take a text and return an int"),
        ("fakes.own_counters:returns_less_than_nothing", "returned -13"),
        ("fakes.own_counters:returns_a_share", r"returned 0\.0"),
        ("fakes.own_counters:raises", "raised ZeroDivisionError"),
        ("fakes.own_counters:raises_when_empty", "raised ZeroDivisionError"),
        ("fakes.own_counters:leaves", "raised SystemExit"),
    ],
)
def test_a_counter_that_cannot_work_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(SettingInvalid, match=reason):
        make_counter(name)


def test_messages_are_counted_with_their_framing() -> None:
    counter = make_counter("tiktoken")
    message = PromptMessage(Role.USER, "hello world")

    assert count_message(message, counter.count) > counter.count("hello world")


@pytest.mark.parametrize("word", ["break", "leave", "interrupt"])
def test_a_counter_that_breaks_later_falls_back_to_characters(word: str) -> None:
    counter = make_counter("fakes.own_counters:breaks_later")

    assert (counter.count("one two"), counter.count(word)) == (2, CharsCounter().count(word))


@pytest.mark.slow
def test_a_counter_that_never_returns_is_refused_after_two_seconds() -> None:
    with pytest.raises(SettingInvalid, match="takes too long"):
        make_counter("fakes.own_counters:never_returns")


@pytest.mark.slow
async def test_a_counter_that_no_thread_is_free_for_is_not_called_faulty() -> None:
    is_held, calls = threading.Event(), list[asyncio.Task[Outcome[object]]]()
    while not any(call.done() for call in calls):
        calls.append(asyncio.create_task(call_plugin(is_held.wait, lambda value: value, HANG_SECONDS)))
        await asyncio.sleep(0)

    try:
        with pytest.raises(SettingInvalid, match=r"could not be tried: .* plugin calls are under way"):
            import_counter("fakes.own_counters:count_words")
    finally:
        is_held.set()
        await asyncio.gather(*calls)


@pytest.mark.slow
def test_a_counter_without_its_packages_is_refused_with_what_to_install() -> None:
    program = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from throughline.llm.counters import make_counter\n"
        "try:\n    make_counter('transformers:gpt2')\n"
        "except Exception as error:\n    print(error)\n"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "pip install 'throughline[transformers]'" in shown.stdout


TRANSFORMERS_PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. "
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokenizer that pads, truncates and frames as those of real models do."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [TRANSFORMERS_PROSE], BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
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

    one, ten = counter.count(TRANSFORMERS_PROSE), counter.count(TRANSFORMERS_PROSE * 10)

    assert counter.name == f"transformers:{tokenizer_file}"
    assert counter.count("The") == 1
    assert one > 10
    assert ten == 10 * one
    assert counter.count("") == 0


def test_a_folder_with_a_tokenizer_will_do(tokenizer_file: Path) -> None:
    by_folder, by_file = (make_counter(f"transformers:{path}") for path in (tokenizer_file.parent, tokenizer_file))

    assert by_folder.count(TRANSFORMERS_PROSE) == by_file.count(TRANSFORMERS_PROSE)


@pytest.mark.parametrize("text", ["<s>", "a<s>b<s>", "\ud83d", "a\x00b", "持續的對話 😀"])
def test_special_tokens_and_any_character_count_as_plain_text(tokenizer_file: Path, text: str) -> None:
    assert make_counter(f"transformers:{tokenizer_file}").count(text) >= len(text)


def test_a_long_text_is_counted_in_pieces_of_the_same_sum(tokenizer_file: Path) -> None:
    counter = make_counter(f"transformers:{tokenizer_file}")
    times = 3 * PIECE_CHARACTERS // len(TRANSFORMERS_PROSE)

    counted = counter.count(TRANSFORMERS_PROSE * times)

    assert counted == pytest.approx(times * counter.count(TRANSFORMERS_PROSE), abs=12)


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
        f"print(make_counter('transformers:acme/small').count({TRANSFORMERS_PROSE!r}))\n"
    )

    shown = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HOME": str(tmp_path)},
    )

    assert int(shown.stdout) == make_counter(f"transformers:{tokenizer_file}").count(TRANSFORMERS_PROSE)


TURNS = 12


@pytest.mark.parametrize("write", list(TEXTS.values()), ids=list(TEXTS))
@pytest.mark.parametrize("way", sorted(COUNTINGS))
def test_after_three_turns_the_estimate_is_within_five_percent(way: str, write: Callable[[random.Random], str]) -> None:
    errors = [estimate.error for estimate in play(write, way, TURNS) if estimate.turn > 3]

    assert len(errors) == TURNS - 3
    assert max(abs(error) for error in errors) <= 0.05


@pytest.mark.parametrize("write", list(TEXTS.values()), ids=list(TEXTS))
@pytest.mark.parametrize("way", sorted(COUNTINGS))
def test_one_turn_is_enough_not_to_be_far_below_the_providers_count(
    way: str, write: Callable[[random.Random], str]
) -> None:
    assert all(estimate.error >= -0.05 for estimate in play(write, way, TURNS) if estimate.turn > 1)


@pytest.mark.slow
def test_a_piece_finds_its_call_as_fast_among_many() -> None:
    def pieces_of(count: int) -> list[AIMessageChunk]:
        pieces = (ToolCallChunk(name=None, args="x", id=None, index=number % count) for number in range(count * 10))
        return [AIMessageChunk(content="", tool_call_chunks=[piece]) for piece in pieces]

    def assemble(chunks: list[AIMessageChunk]) -> None:
        assembly = AnswerAssembly(adds_usage=False, max_call_characters=MOST_CALLS * 10)
        for chunk in chunks:
            list(assembly.add(chunk))

    assert grows_linearly(assemble, pieces_of, MOST_CALLS // FACTOR)
