"""Facts found by their form: which forms count, what of a message becomes the fact, and how many are taken."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.strategies import Said, by_length, conversations, stored
from fakes.growth import grows_linearly
from throughline.context.summaries.readable_text import SCANNED_HEAD, readable
from throughline.context.summaries.structured_facts import (
    FACT_CHARACTERS,
    MAX_OUTPUT_FACTS,
    MAX_SPOKEN_FACTS,
    SUBJECT_CHARACTERS,
    structured_facts,
)
from throughline.domain.message import Message, Role, TextBlock, ToolCall, text_of
from throughline.domain.summary import FactKind, KeptFact

VALUE, IDENTIFIER = FactKind.VALUE, FactKind.IDENTIFIER
COMMAND, ERROR = FactKind.COMMAND, FactKind.ERROR

SUBJECTS = (
    ("look at /etc/nginx/nginx.conf, please", IDENTIFIER, "/etc/nginx/nginx.conf"),
    ("in app/main.py:12: broken", IDENTIFIER, "app/main.py:12"),
    ("open (notes.md).", IDENTIFIER, "notes.md"),
    ("see app/context/plan for it", IDENTIFIER, "app/context/plan"),
    ("run ./configure now", IDENTIFIER, "./configure"),
    (r"it is C:\Users\me\file.txt, I think", IDENTIFIER, r"C:\Users\me\file.txt"),
    (r"see C:\Users\Max Mustermann\report.docx, please", IDENTIFIER, r"C:\Users\Max Mustermann\report.docx"),
    (r"on \\server\share\a.txt", IDENTIFIER, r"\\server\share\a.txt"),
    ("open '/srv/a/My Docs/plan v2.pdf' now", IDENTIFIER, "/srv/a/My Docs/plan v2.pdf"),
    (r"ls /srv/a/My\ Docs/plan.pdf", IDENTIFIER, r"/srv/a/My\ Docs/plan.pdf"),
    ("my .env is wrong", IDENTIFIER, ".env"),
    ("请看/etc/hosts文件", IDENTIFIER, "/etc/hosts"),
    ("see https://example.com/a/b?c=d#e.", IDENTIFIER, "https://example.com/a/b?c=d#e"),
    ("(https://en.wikipedia.org/wiki/A_(b))", IDENTIFIER, "https://en.wikipedia.org/wiki/A_(b)"),
    ("見てhttps://example.com/aをください", IDENTIFIER, "https://example.com/a"),
    ("see https://例え.jp/パス for it", IDENTIFIER, "https://例え.jp/パス"),
    ("the dsn is postgres://app@db/x", IDENTIFIER, "postgres://app@db/x"),
    ("docs.python.org/3/library has it", IDENTIFIER, "docs.python.org/3/library"),
    ("clone git@github.com:a/b.git first", IDENTIFIER, "git@github.com:a/b.git"),
    ("mail bob.smith+x@example.co.uk!", IDENTIFIER, "bob.smith+x@example.co.uk"),
    ("at 10.0.0.1:8080.", IDENTIFIER, "10.0.0.1:8080"),
    ("the net is 10.0.0.0/16.", IDENTIFIER, "10.0.0.0/16"),
    ("at 2001:db8::ff00:42:8329.", IDENTIFIER, "2001:db8::ff00:42:8329"),
    ("the net is 2001:db8::/32.", IDENTIFIER, "2001:db8::/32"),
    ("listens on ::1 only", IDENTIFIER, "::1"),
    ("localhost:3000 is up", IDENTIFIER, "localhost:3000"),
    ("use db-main:5432 for it", IDENTIFIER, "db-main:5432"),
    ("id 123e4567-e89b-12d3-a456-426614174000.", IDENTIFIER, "123e4567-e89b-12d3-a456-426614174000"),
    ("mac 00:1A:2B:3C:4D:5E is it", IDENTIFIER, "00:1A:2B:3C:4D:5E"),
    ("to arn:aws:s3:::my_bucket/key now", IDENTIFIER, "arn:aws:s3:::my_bucket/key"),
    ("ticket LX-4471 is open", IDENTIFIER, "LX-4471"),
    ("contract C-2291, please", IDENTIFIER, "C-2291"),
    ("it runs on db-prod-3 now", IDENTIFIER, "db-prod-3"),
    ("commit a1b2c3d broke it", IDENTIFIER, "a1b2c3d"),
    ("my PNR 8JX2QK is lost", IDENTIFIER, "8JX2QK"),
    ("I am mia_li_3668, hello", IDENTIFIER, "mia_li_3668"),
    ("order #W1234567 is late", IDENTIFIER, "#W1234567"),
    ("fixed in #482 now", IDENTIFIER, "#482"),
    ("upgrade to v1.2.3-rc1", IDENTIFIER, "v1.2.3-rc1"),
    ("KEY-3=v3", VALUE, "KEY-3"),
    ("Remember that KEY-3=v3 holds.", VALUE, "KEY-3"),
    ("retries=5", VALUE, "retries"),
    ("retries = 5", VALUE, "retries"),
    ("--flag=value", VALUE, "--flag"),
    ('  host="my db"', VALUE, "host"),
    ("- export A_B=c", VALUE, "A_B"),
    ("django==5.0.1", VALUE, "django"),
    ("KEY-3: v3", VALUE, "KEY-3"),
    ("SUPPORT_TEXT: hello and welcome", VALUE, "SUPPORT_TEXT"),
    ("PORT: 5432", VALUE, "PORT"),
    ("timeout: 30s", VALUE, "timeout"),
    ("so:\n$ git push origin main\nthen", COMMAND, "git push origin main"),
    ("ann@web-1:~/a$ tail -f x", COMMAND, "tail -f x"),
    ("use `ruff check .` always", COMMAND, "ruff check ."),
    ("run `npm install left-pad` first", COMMAND, "npm install left-pad"),
    ("run `$ PORT=80 ./serve --all` first", COMMAND, "PORT=80 ./serve --all"),
    ("```bash\nmake check\n# then\nnpm test -- --watch\n```\n", COMMAND, "make check"),
    ("```bash\nmake check\n# then\nnpm test -- --watch\n```\n", COMMAND, "npm test -- --watch"),
    ("```console\n# apt install jq\nReading lists\n```\n", COMMAND, "apt install jq"),
    ("```sh\n> ls -l /srv\ntotal 3", COMMAND, "ls -l /srv"),
    ("$ docker run \\\n  -p 80:80 web\n", COMMAND, "docker run \\ -p 80:80 web"),
    (
        "It failed with 'OOMKilled' in the reconcile step, line 212.",
        ERROR,
        "failed with 'OOMKilled' in the reconcile step",
    ),
    ("Traceback\nValueError: bad value\n", ERROR, "ValueError: bad value"),
    ("We see a KeyError now", ERROR, "KeyError"),
    ("Error: cannot open x", ERROR, "Error: cannot open x"),
    ("panic: runtime error", ERROR, "panic: runtime error"),
    ("fatal: not a git repository", ERROR, "fatal: not a git repository"),
    ("it died with exit code 137.", ERROR, "exit code 137"),
    ("HTTP/1.1 404 Not Found", ERROR, "HTTP/1.1 404"),
    ("got 503 Service Unavailable", ERROR, "503 Service Unavailable"),
    ("connect ECONNREFUSED", ERROR, "ECONNREFUSED"),
    ("x\nbash: foo: command not found\n", ERROR, "foo: command not found"),
)

NOTHING = (
    "and/or, he/she, km/h, 3/4, 24/7",
    "on 12/03/2026, on 2026/03/12 or on 12.03.2026 at 10:30:15",
    "type /help",
    "</div> and <br/>",
    "as [#12] and [#12-#40] say, [#3 user] and [#11 assistant] too",
    "UTF-8 and SHA-256 and COVID-19",
    "e.g. this, i.e. that, Node.js or example.com",
    "done.Next we go",
    "defaced and acceded",
    "PLEASE UPDATE",
    "Note: this is it. Deadline: Friday, and: done",
    "it ended with exit code 0, HTTP/1.1 200 OK",
    "no error, 0 errors and an error",
    "the `PaymentService` and `x = y` and `return x`",
    "it costs $ 500 or $500",
    "aB3+" * 60,
    "12",
    "",
)

HOSTILE = (
    "a",
    "/",
    "a/",
    "a.",
    "a_",
    "a-",
    "1:",
    "http://",
    "a@",
    "Error: ",
    "`a",
    "$ \n",
    "[",
    "{",
    "a=",
    "```sh\n",
    "é\x00",
)


def facts_of(text: str, role: Role = Role.USER) -> tuple[KeptFact, ...]:
    return structured_facts(stored([Said(role, text)], by_length)[0])


def texts_of(text: str, role: Role = Role.USER) -> list[str]:
    return [fact.text for fact in facts_of(text, role)]


# Which forms count


@pytest.mark.parametrize(("text", "kind", "subject"), SUBJECTS)
@pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT])
def test_a_fact_is_known_by_its_form(text: str, kind: FactKind, subject: str, role: Role) -> None:
    found = [(fact.kind, fact.said_by) for fact in facts_of(text, role) if fact.subject.startswith(subject)]

    assert found == [(kind, role)]


@pytest.mark.parametrize("text", NOTHING)
@pytest.mark.parametrize("role", list(Role))
def test_what_only_looks_like_a_fact_is_none(text: str, role: Role) -> None:
    assert facts_of(text, role) == ()


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('"user_id": "HATHAT",', "HATHAT"),
        ('{"reservation_id": "HATHAT"}', "HATHAT"),
        ('{"file": "/srv/a/My Docs/plan v2.pdf"}', "/srv/a/My Docs/plan v2.pdf"),
        ('{"cmd": "find ."}', "find ."),
        ('{"status": 404, "error": "User x is gone."}', "User x is gone."),
        ('{"out": "x\\nretries=5\\ny"}', "retries=5"),
        ("E   ValueError: bad value", "E ValueError: bad value"),
        (
            'Traceback (most recent call last):\n  File "a", line 1, in b\nrequests.Timeout: too late',
            "requests.Timeout: too late",
        ),
        ("10:00 [ERROR] db: no 'x' at /a/b.py", "10:00 [ERROR] db: no 'x' at /a/b.py"),
        (
            "failed with 'OOMKilled' in the reconcile step, line 212",
            "failed with 'OOMKilled' in the reconcile step, line 212",
        ),
    ],
)
def test_of_an_output_the_token_or_the_errors_line_is_the_fact(text: str, fact: str) -> None:
    assert texts_of(text, Role.TOOL) == [fact]


# What of a message becomes the fact


def test_of_a_person_the_whole_sentence_is_the_fact() -> None:
    text = "Thanks. It runs on db-prod-3 now,\nnot on 10.0.0.1! Never touch /etc/hosts.\n- See #482"

    assert facts_of(text) == (
        KeptFact(IDENTIFIER, "It runs on db-prod-3 now,", 1, Role.USER, "db-prod-3"),
        KeptFact(IDENTIFIER, "not on 10.0.0.1!", 1, Role.USER, "10.0.0.1"),
        KeptFact(IDENTIFIER, "Never touch /etc/hosts.", 1, Role.USER, "/etc/hosts"),
        KeptFact(IDENTIFIER, "See #482", 1, Role.USER, "#482"),
    )


def test_of_a_long_sentence_the_words_around_the_token_are_kept() -> None:
    (fact,) = facts_of(f"{'before ' * 100}db-prod-3{' behind' * 100}")

    assert fact.subject == "db-prod-3"
    assert FACT_CHARACTERS - 20 < len(fact.text) <= FACT_CHARACTERS
    assert set(fact.text.split()) == {"before", "db-prod-3", "behind"}


def test_a_second_token_of_a_long_sentence_is_a_fact_of_its_own() -> None:
    facts = facts_of(f"db-prod-3 {'word ' * 100}db-prod-4 {'word ' * 100}")

    assert [fact.subject for fact in facts] == ["db-prod-3", "db-prod-4"]


def test_only_errors_and_commands_are_cut_and_visibly() -> None:
    error, command = facts_of(f"ERROR: {'x' * 500}", Role.TOOL) + facts_of(f"$ echo {'x' * 300}")

    assert (error.text[-1], len(error.text)) == ("…", FACT_CHARACTERS)
    assert (command.text[-1], len(command.text)) == ("…", FACT_CHARACTERS)
    assert len(error.subject) == SUBJECT_CHARACTERS
    assert facts_of(f"https://example.com/{'a/' * 150}", Role.TOOL) == ()


def test_of_what_a_person_pastes_the_tokens_are_facts() -> None:
    text = "Look at db-prod-3 here:\n```py\nopen('/etc/hosts')  # read it\n```\n> see LX-4471 there\nThanks for #482."

    assert texts_of(text) == ["Look at db-prod-3 here:", "/etc/hosts", "LX-4471", "Thanks for #482."]


def test_of_a_pasted_log_errors_are_facts_and_neither_times_nor_numbers() -> None:
    lines = [f"2026-03-04 10:{minute}:07 INFO job took {minute * 7} ms, pid=4711" for minute in range(10, 51)]
    lines.insert(20, "2026-03-04 10:30:09 ERROR job failed with 'OOMKilled', line 212")
    log = "\n".join(lines)

    assert texts_of(log) == texts_of(log, Role.TOOL) == [lines[20]]
    assert texts_of(f"Why?\n{log}\nIs it db-prod-3?") == [lines[20], "Is it db-prod-3?"]


def test_prompts_tell_commands_from_outputs_in_a_block() -> None:
    assert texts_of("```console\n$ ls\na  b\n$ make all\ndone\n```") == ["ls", "make all"]


def test_our_own_tags_end_a_fact_and_are_none() -> None:
    text = "ERROR: x [#2 user]; see /etc/passwd [#3], and [#11 assistant] db-prod-3"

    assert texts_of(text) == ["ERROR: x", "; see /etc/passwd", "db-prod-3"]


def test_calls_are_the_assistants_and_come_behind_its_text() -> None:
    call = ToolCall("a", "bash", json.dumps({"command": "pytest -x tests", "path": "/srv/a\nb.py"}))
    blocks = (TextBlock("I look at b.py"), TextBlock("and LX-4471"))

    facts = structured_facts(stored([Said(Role.ASSISTANT, blocks, (call,))], by_length)[0])

    assert [fact.text for fact in facts] == ["I look at b.py", "and LX-4471", "pytest -x tests", "/srv/a", "b.py"]
    assert {fact.said_by for fact in facts} == {Role.ASSISTANT}


# How many are taken


def test_of_an_output_errors_come_first_then_paths_then_identifiers() -> None:
    lines = [f"a-b-{number}" for number in range(20)] + [f"/srv/{number}/a" for number in range(10)] + ["ERROR: bad"]

    facts = texts_of("\n".join(lines), Role.TOOL)

    assert facts == [*lines[:1], *lines[20:]]
    assert len(facts) == MAX_OUTPUT_FACTS


def test_of_a_persons_words_more_facts_are_taken_than_of_a_paste() -> None:
    own = "\n".join(f"a-b-{number}" for number in range(50))

    assert len(facts_of(own)) == MAX_SPOKEN_FACTS
    assert len(facts_of(f"```\n{own}\n```")) == MAX_OUTPUT_FACTS


def test_the_same_error_at_other_times_is_one_fact() -> None:
    assert texts_of("10:01 ERROR: x\n10:02 ERROR: x\n/a/b /a/b", Role.TOOL) == ["10:01 ERROR: x", "/a/b"]


def test_head_and_tail_of_a_huge_text_are_read_and_no_word_is_cut() -> None:
    assert texts_of("start.py. " + "middle " * 200_000 + ". See end.py") == ["start.py.", "See end.py"]
    for shift in range(12):
        cut = "a" * shift + " word" * ((SCANNED_HEAD - 40) // 5) + " /etc/hosts.conf/deep.conf" * 5000
        assert texts_of(cut, Role.TOOL) == ["/etc/hosts.conf/deep.conf"]


# Whatever the text is

pieces = st.one_of(st.sampled_from([*(text for text, _, _ in SUBJECTS), *NOTHING, *HOSTILE]), st.text(max_size=40))
texts = st.lists(pieces, max_size=12).flatmap(
    lambda parts: st.sampled_from([" ", "\n", ". ", ""]).map(lambda by: by.join(parts))
)


@given(texts, st.sampled_from(list(Role)))
def test_facts_are_verbatim_short_few_and_the_same_each_time(text: str, role: Role) -> None:
    check_facts(stored([Said(role, text)], by_length)[0])


@pytest.mark.slow
@given(conversations(1000, max_items=4))
def test_facts_of_conversations_stand_in_their_messages(said: list[Said]) -> None:
    for message in stored(said, by_length):
        check_facts(message)


def test_escapes_in_json_bring_nothing_that_cannot_be_stored() -> None:
    hidden = r'{"e": "Error: bad \ud800 thing", "command": "echo \u0000 hi"}'

    texts = [fact.text for fact in facts_of(hidden, Role.TOOL)]

    assert texts == ["Error: bad \N{REPLACEMENT CHARACTER} thing", "echo \N{REPLACEMENT CHARACTER} hi"]


def check_facts(message: Message) -> None:
    facts = structured_facts(message)

    assert facts == structured_facts(message)
    arguments = [call.arguments for call in message.tool_calls]
    sources = [flat(part) for text in (text_of(message.content), *arguments) for part in (text, readable(text))]
    for fact in facts:
        is_cut = fact.kind in {ERROR, COMMAND} and len(fact.text) >= FACT_CHARACTERS - 1
        quote = fact.text.removesuffix("…").rstrip() if is_cut else fact.text
        assert any(quote in source for source in sources)
        assert fact.text
        assert fact.text == flat(fact.text)
        assert fact.subject == flat(fact.subject) != ""
        assert len(fact.text) <= FACT_CHARACTERS
        assert (fact.position, fact.said_by) == (message.position, message.role)
    assert len({(fact.kind, fact.text) for fact in facts}) == len(facts)
    assert len(facts) <= MAX_SPOKEN_FACTS + MAX_OUTPUT_FACTS * (1 + len(arguments))


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("role", [Role.USER, Role.TOOL])
def test_a_message_of_hostile_text_costs_in_proportion_to_its_size(piece: str, role: Role) -> None:
    assert grows_linearly(lambda text: facts_of(text, role), lambda size: piece * (size // len(piece)), 250_000)
