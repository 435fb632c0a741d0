import asyncio
import subprocess
import sys
import threading

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from fakes.growth import grows_linearly
from fakes.waiting import HANG_SECONDS
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import Role
from throughline.domain.prompt import PromptMessage
from throughline.execution.call_plugin import call_plugin
from throughline.execution.error_boundary import Outcome
from throughline.llm.counters import (
    PIECE_CHARACTERS,
    SHIPPED,
    CharsCounter,
    TiktokenCounter,
    count_piece,
    count_tokens,
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

    assert count_tokens(text, counter) >= (1 if text else 0)


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
    messages = [PromptMessage(Role.USER, "hello world"), PromptMessage(Role.ASSISTANT, "hello world")]

    assert count_tokens(messages, counter) > 2 * count_tokens("hello world", counter)


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
