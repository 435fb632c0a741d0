"""`throughline sessions import | redact`, and what a refused search says."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import Result

from fakes.command_stage import CommandStage, FakeWorld
from fakes.conversations import Conversation
from throughline.cli.commands_status import draw_usage, sum_line
from throughline.domain.model_window import CheckedCall, CheckedModel, ModelCheck, ModelWindow, ToolUse, WindowOrigin
from throughline.domain.prompt import Usage
from throughline.domain.recall import MAX_MEMORY_CHARACTERS, Memory
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.wire.service import UsageGroupOut

Throughline = Callable[..., Result]
MESSAGES = [{"role": "user", "content": "Grüße"}]
EXPORT = b'{"type": "session", "agent": "assistant"}\n{"type": "message", "role": "user", "content": "Hello"}\n'
SESSION = "select id::text, agent, title, (select string_agg(content, '|') from messages) from sessions"


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def imported(service: CommandStage) -> list[tuple[str | None, dict[str, str], bytes]]:
    """Return media type, query and body of each conversation that was handed in."""
    return [
        (request.headers.get("content-type"), dict(request.query_params), bytes(body))
        for request, body in zip(service.way.asked, service.way.bodies, strict=True)
        if request.url.path == "/v1/sessions/import"
    ]


@pytest.fixture
async def talk(service: CommandStage) -> Conversation:
    return await service.talk(3)


@pytest.mark.parametrize("indent", [None, 2])
async def test_a_conversation_in_openais_format_is_imported(
    service: CommandStage, tmp_path: Path, indent: int | None
) -> None:
    body = {"agent": "assistant", "title": "Old", "messages": MESSAGES}
    file = written(tmp_path / "talk.json", json.dumps(body, indent=indent, ensure_ascii=False).encode())

    result = await service.run("sessions", "import", file, "--title", "New")

    kind, query, sent = imported(service)[0]
    assert (result.exit_code, kind, query) == (0, "application/json", {})
    assert json.loads(sent) == {**body, "title": "New"}
    session_id = result.stdout.strip()
    assert await service.sql(SESSION) == [(session_id, "assistant", "New", "Grüße")]
    assert result.stdout == f"{session_id}\n"
    assert "1 messages imported" in result.stderr
    assert f"throughline chat --session {session_id}" in result.stderr


async def test_a_bare_list_of_messages_needs_an_agent(service: CommandStage, tmp_path: Path) -> None:
    file = written(tmp_path / "talk.json", json.dumps(MESSAGES).encode())

    refused = await service.run("sessions", "import", file)
    made = await service.run("sessions", "import", file, "--agent", "researcher")

    assert (refused.exit_code, made.exit_code) == (1, 0)
    assert "Add --agent, for example --agent assistant." in refused.stderr
    assert [json.loads(sent) for _, _, sent in imported(service)] == [{"agent": "researcher", "messages": MESSAGES}]


@pytest.mark.parametrize("content", [EXPORT, EXPORT.splitlines()[0], EXPORT + b"{broken"])
async def test_an_export_is_sent_as_it_is(service: CommandStage, tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path / "talk.jsonl", content)

    await service.run("sessions", "import", file, "--agent", "researcher")

    assert imported(service) == [("application/x-ndjson", {"agent": "researcher"}, content)]


async def test_the_external_id_of_a_file_is_kept_replaced_or_left_out(service: CommandStage, tmp_path: Path) -> None:
    session, *rest = EXPORT.splitlines(keepends=True)
    named = json.dumps({**json.loads(session), "external_id": "a"}).encode() + b"\n"
    export = written(tmp_path / "talk.jsonl", b"".join((named, *rest)))
    body = {"agent": "assistant", "external_id": "d", "messages": MESSAGES}
    conversation = written(tmp_path / "talk.json", json.dumps(body).encode())

    for file, options in (
        (export, ()),
        (export, ("--external-id", "b")),
        (export, ("--external-id", "")),
        (conversation, ("--external-id", "c")),
        (conversation, ("--external-id", "")),
    ):
        assert (await service.run("sessions", "import", file, *options)).exit_code == 0

    found = await service.sql("select external_id from sessions order by created_at")
    assert found == [("a",), ("b",), (None,), ("c",), (None,)]


async def test_an_export_is_read_from_a_pipe(service: CommandStage) -> None:
    await service.run("sessions", "import", "-", typed=EXPORT.decode())

    assert [sent for _, _, sent in imported(service)] == [EXPORT]
    assert await service.said() == ["Hello"]


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"{", b"7", b"[" * 100_000])
def test_a_file_that_is_neither_format_is_refused_here(
    world: FakeWorld, throughline: Throughline, tmp_path: Path, content: bytes
) -> None:
    world.socket_path = tmp_path / "nobody listens: sending would be another error"

    result = throughline("sessions", "import", written(tmp_path / "x", content))

    assert result.exit_code == 1
    assert "The file is neither JSON nor JSON Lines" in " ".join(result.stderr.split())


def test_a_file_that_is_not_there_is_a_usage_error(throughline: Throughline) -> None:
    assert throughline("sessions", "import", "/no/such/file").exit_code == 2


@pytest.mark.parametrize("name", ["2", "#2", "id"])
async def test_a_message_is_redacted_by_position_or_id(service: CommandStage, talk: Conversation, name: str) -> None:
    before = await talk.messages()
    named = before[1].id if name == "id" else name

    result = await service.run("sessions", "redact", talk.session.id, named, "--yes")

    after = await talk.messages()
    assert (result.exit_code, [message.position for message in after if message not in before]) == (0, [2])
    assert "message #2 is redacted" in result.stderr


async def test_a_message_is_redacted_only_after_a_yes(service: CommandStage, talk: Conversation) -> None:
    stored = await talk.messages()

    refused = await service.run("sessions", "redact", talk.session.id, 2, typed="n\n")
    before = await talk.messages()
    done = await service.run("sessions", "redact", talk.session.id, 2, typed="y\n")

    assert (refused.exit_code, before, done.exit_code) == (1, stored, 0)
    assert f"message #2 of session {talk.session.id}" in refused.stderr


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("9", "There is no message #9 in session"),
        ("0", "'0' is neither the position of a message, such as 12, nor its id."),
        ("99999999999999999999", "is neither the position"),
        ("abc", "'abc' is neither the position"),
        (str(UUID(int=5)), f"There is no message {UUID(int=5)} in session"),
    ],
)
async def test_an_unknown_message_is_refused_with_a_reason(
    service: CommandStage, talk: Conversation, name: str, what: str
) -> None:
    result = await service.run("sessions", "redact", talk.session.id, name, "--yes")

    assert result.exit_code == 1
    assert what in " ".join(result.stderr.split())


async def test_a_search_that_is_refused_says_why_in_a_chat_and_outside_one(
    service: CommandStage, talk: Conversation
) -> None:
    outside = await service.run("sessions", "search", "before:yesterday")
    inside = await service.run("chat", "--session", talk.session.id, typed="/search before:yesterday\n")

    assert (outside.exit_code, outside.stderr) == (1, inside.stderr)
    assert inside.stderr.startswith("Error: `before:yesterday` names no day. ")


MANY = """
    insert into memories (id, user_id, text, terms, analyzer, created_at, updated_at)
    select gen_random_uuid(), $1, format(e'text %s\\nmore', n), '{}', '', now() + n * interval '1 second', now()
    from generate_series(0, 129) n
"""


async def keep(service: CommandStage, text: str) -> Memory:
    return await service.api.services.memories.create(service.owner_id, text, {})


async def texts(service: CommandStage) -> list[object]:
    return [text for (text,) in await service.sql("select text from memories")]


async def test_a_memory_is_added_shown_edited_and_deleted(service: CommandStage) -> None:
    added = await service.run("memories", "add", "Anna's cat is called [b]Miso[/b].\x1b[2J")
    memory_id = added.stdout.strip()
    shown = await service.run("memories", "show", memory_id)
    edited = await service.run("memories", "edit", memory_id, "It is called Tofu.")
    after = await service.run("memories", "show", memory_id)
    deleted = await service.run("memories", "delete", memory_id, "--yes")

    assert [result.exit_code for result in (added, shown, edited, after, deleted)] == [0] * 5
    assert shown.stdout.endswith("Anna's cat is called [b]Miso[/b].\n")
    assert "It is called Tofu." in after.stdout
    assert (f"memory {memory_id} is changed" in edited.stderr, await texts(service)) == (True, [])


async def test_a_memory_is_stored_from_a_chat(service: CommandStage) -> None:
    result = await service.run("chat", typed="/remember  My office is in Kungsgatan 12.\n")

    ((memory_id, text),) = await service.sql("select id::text, text from memories")
    assert (result.exit_code, text) == (0, "My office is in Kungsgatan 12.")
    assert result.stdout == f"Stored as memory {memory_id}.\n"
    assert await service.titles() == []


@pytest.mark.parametrize(
    ("text", "refusal"), [("", "Write /remember with the text"), ("x" * (MAX_MEMORY_CHARACTERS + 1), "10000")]
)
async def test_an_empty_and_a_long_memory_are_refused(service: CommandStage, text: str, refusal: str) -> None:
    result = await service.run("chat", typed=f"/remember {text}\n")

    assert refusal in result.stderr.replace(",", "")
    assert await texts(service) == []


async def test_memories_are_listed_over_pages_newest_first(service: CommandStage) -> None:
    await service.sql(MANY, service.owner_id)

    whole = await service.run("memories", "list", "--limit", 130)
    part = await service.run("memories", "list", "--limit", 128)
    rest = await service.run("memories", "list", "--cursor", part.stderr.split("--cursor ")[1].strip())

    numbers = [line.split()[-2] for line in whole.stdout.splitlines()]
    assert numbers == [str(number) for number in range(129, -1, -1)]
    assert len(part.stdout.splitlines()) == 128
    assert rest.stdout.splitlines() == whole.stdout.splitlines()[-2:]


async def test_memories_are_searched(service: CommandStage) -> None:
    await keep(service, "The cat is called Miso.")
    await keep(service, "The dog is called Rex.")

    found = await service.run("memories", "search", "cat")
    nothing = await service.run("memories", "search", "zebra")

    assert "Miso" in found.stdout
    assert "Rex" not in found.stdout
    assert "nothing was found" in nothing.stderr


async def test_without_memories_it_is_said_how_to_keep_one(service: CommandStage) -> None:
    assert "throughline memories add" in (await service.run("memories", "list")).stderr


async def test_a_memory_is_deleted_only_after_a_yes(service: CommandStage) -> None:
    memory_id = (await keep(service, "text")).id

    refused = await service.run("memories", "delete", memory_id, typed="n\n")
    kept = await texts(service)
    deleted = await service.run("memories", "delete", memory_id, typed="y\n")

    assert (refused.exit_code, kept, deleted.exit_code, await texts(service)) == (1, ["text"], 0, [])


async def test_an_unknown_memory_is_an_error_in_a_sentence(service: CommandStage) -> None:
    result = await service.run("memories", "show", UUID(int=1))

    assert (result.exit_code, result.stderr) == (1, f"Error: There is no memory {UUID(int=1)}.\n")


async def record(service: CommandStage, model: str, usage: Usage) -> None:
    payer = Payer(service.owner_id, agent="helper")
    await service.api.database.usage.store_calls(payer, [ModelCall(model, CallPurpose.ANSWER, usage)])


async def test_each_group_has_a_line_a_bar_and_its_cost(service: CommandStage) -> None:
    await record(service, "openai:gpt-4o", Usage(1_000, 100, cost_usd=Decimal("2.5")))
    await record(service, "small", Usage(10, 5, cost_usd=Decimal("0.0125")))
    await record(service, "local", Usage(7, 1))

    result = await service.run("usage", "--by", "model,agent")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert lines[0] == ["Model", "Agent", "Calls", "Input", "Output", "Cost"]
    assert lines[1] == ["openai:gpt-4o", "helper", "1", "1,000", "100", "$2.50", f"[{'█' * 20}]"]
    assert lines[2] == ["small", "helper", "1", "10", "5", "$0.0125", f"[█{'░' * 19}]"]
    assert lines[3] == ["local", "helper", "1", "7", "1", "–", f"[{'░' * 20}]"]
    assert result.stdout.splitlines()[-1] == "Together: 3 calls, 1,123 tokens, $2.51, and 1 calls of unknown cost"


async def test_json_is_the_report_of_the_service(service: CommandStage) -> None:
    await record(service, "local", Usage(7, 1))

    report = json.loads((await service.run("usage", "--by", "none", "--json", "--days", "1")).stdout)

    assert [(group["group"], group["calls"], group["cost_usd"]) for group in report["data"]] == [({}, 1, None)]


async def test_without_calls_one_note_says_so(service: CommandStage) -> None:
    result = await service.run("usage")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no model calls in the last 30 days" in result.stderr


@pytest.mark.parametrize("by", ["month", "day,day", "day, hour", "", "day,none"])
async def test_an_unknown_field_is_refused_with_the_known_ones(service: CommandStage, by: str) -> None:
    result = await service.run("usage", "--by", by)

    assert result.exit_code == 2
    assert "day, user, agent, model, purpose" in result.stderr


def group(**of: object) -> UsageGroupOut:
    given = {"group": {"user": None}, "calls": 1, "unpriced_calls": 0, "input_tokens": 1, "output_tokens": None, **of}
    return UsageGroupOut.model_validate(given)


def test_bars_compare_tokens_where_no_cost_is_known_and_a_partial_cost_is_marked() -> None:
    unknown = [group(input_tokens=100, unpriced_calls=1), group(input_tokens=50, unpriced_calls=1)]
    bars = [str(cell) for cell in draw_usage(unknown).columns[-1].cells]
    costs = [str(cell) for cell in draw_usage([group(cost_usd=0.5, unpriced_calls=2)]).columns[-2].cells]

    assert [bar.count("█") for bar in bars] == [20, 10]
    assert costs == ["$0.5000+"]
    assert sum_line(unknown) == "Together: 2 calls, 150 tokens, unknown cost"
    assert str(next(iter(draw_usage(unknown).columns[0].cells))) == "(not assigned)"


WINDOW = ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
GUESSED = ModelWindow(128_000, WindowOrigin.TABLE, neighbour="gpt-4o")
ASSUMED = ModelWindow(4096, WindowOrigin.UNKNOWN, "Ollama")
MODEL = CheckedModel(
    "local", "openai:qwen3", "http://127.0.0.1:8000/v1", WINDOW, WINDOW, "tiktoken:cl100k_base", has_tools=True
)
CALL = CheckedCall(200, Usage(216, 45, 0), 0.3124, 0.5, 29, 25, "tool_calls", ToolUse.CALLED)
GOOD = ModelCheck(MODEL, CALL)


def run(check: ModelCheck, world: FakeWorld, throughline: Throughline) -> Result:
    world.check = check
    return throughline("models", "check", "local")


def test_a_model_that_works_is_shown_in_ten_lines(world: FakeWorld, throughline: Throughline) -> None:
    result = run(GOOD, world, throughline)

    lines = [line.split(None, 1) for line in result.stdout.splitlines()]
    assert {name: value.rstrip() for name, value in lines} == {
        "Agent": "local",
        "Model": "openai:qwen3",
        "Address": "http://127.0.0.1:8000/v1",
        "Window": "40,960 tokens (server: vLLM)",
        "Tokens": "tiktoken:cl100k_base: 200 counted, 216 reported (+8 %)",
        "Streaming": "first text after 312 ms, 58 tokens/s in 25 pieces",
        "Tools": "called",
        "Usage": "prompt 216, answer 45",
        "Cache": "0 tokens of the prompt were cached",
        "Finish": "tool_calls",
    }
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("check", "shown", "remark"),
    [
        (
            replace(GOOD, checked=replace(MODEL, window=ASSUMED, model_window=ASSUMED)),
            "4,096 tokens (assumed, unknown: Ollama)",
            "set context.window in the agent file",
        ),
        (
            replace(GOOD, checked=replace(MODEL, window=GUESSED, model_window=GUESSED)),
            "128,000 tokens (table)",
            "so it gets the window of gpt-4o, 128,000 tokens: check its spelling",
        ),
        (
            ModelCheck(replace(MODEL, summary_seconds=10), replace(CALL, text_tokens=40, text_seconds=10.0)),
            "4 tokens/s",
            "at 4 tokens/s a short summary of 250 tokens takes 62 s, and a turn waits 10",
        ),
        (
            replace(GOOD, checked=replace(MODEL, window=ModelWindow(64_000, WindowOrigin.AGENT_FILE))),
            "64,000 tokens (agent file); the model's: 40,960 (server)",
            "larger than the model's 40,960",
        ),
        (replace(GOOD, call=replace(CALL, tools=ToolUse.NOT_CALLED)), "not called", "its tools may not work"),
        (replace(GOOD, call=replace(CALL, usage=Usage())), "200 counted, not reported", "cannot correct"),
        (replace(GOOD, call=replace(CALL, usage=Usage(216))), "prompt 216, answer not reported", ""),
        (replace(GOOD, call=replace(CALL, usage=Usage(216, 45))), "Cache      not reported", ""),
        (replace(GOOD, call=replace(CALL, first_text_seconds=None)), "no text to measure", ""),
        (replace(GOOD, call=replace(CALL, pieces=1)), "first text after 312 ms, in one piece", ""),
        (replace(GOOD, checked=replace(MODEL, address="")), "the provider's own", ""),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(
    check: ModelCheck, shown: str, remark: str, world: FakeWorld, throughline: Throughline
) -> None:
    result = run(check, world, throughline)

    assert shown in result.stdout
    assert remark in result.stderr
    assert bool(remark) == bool(result.stderr)
    assert result.exit_code == 0


def test_a_call_that_fails_is_an_error_with_its_cause(world: FakeWorld, throughline: Throughline) -> None:
    result = run(ModelCheck(MODEL, None, "openai:qwen3: the key is not accepted; check it"), world, throughline)

    assert "40,960 tokens (server: vLLM)" in result.stdout
    assert "Streaming" not in result.stdout
    assert "Error: openai:qwen3: the key is not accepted; check it" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize(("has_tools", "exit_code"), [(True, 1), (False, 0)])
def test_refused_tools_fail_an_agent_that_has_some(
    *, has_tools: bool, exit_code: int, world: FakeWorld, throughline: Throughline
) -> None:
    call = replace(CALL, tools=ToolUse.REFUSED, refusal="start vLLM with --enable-auto-tool-choice")

    result = run(ModelCheck(replace(MODEL, has_tools=has_tools), call), world, throughline)

    assert "start vLLM with --enable-auto-tool-choice" in result.stderr
    assert result.exit_code == exit_code
    assert ("The agent local has tools" in result.stderr) == has_tools


def test_an_agent_has_to_be_named(throughline: Throughline) -> None:
    assert throughline("models", "check").exit_code == 2
