from pathlib import Path

import pytest

from app.agents.definition import AgentDefinition
from app.agents.registry import AgentDefaults, AgentRegistry, load_agents
from app.context.policy import Adopt, ContextPolicy, PrunePolicy, SummaryKind, SummaryPolicy
from app.domain.errors import AgentInvalid, NotFound, SettingInvalid

DEFAULTS = AgentDefaults(usage_threshold=0.7, summary_model="")

EVERYTHING = """
name: everything
description: Writes every field.
model: openai:gpt-4o
base_url: http://127.0.0.1:8080/v1
system_prompt: Be brief.
tools: [current_time, "own_tools:weather"]
max_tool_rounds: 0
context:
  strategy: summarization
  auto_summarize: false
  usage_threshold: 0.6
  target: 0.3
  max_messages_before_summary: 12
  max_tokens_before_summary: 9000
  adopt: immediately
  min_recent_messages: 4
  response_reserve: 1000
  window: 16000
  prune: {start: 0.5, aggressive: 0.6, critical: 0.7, keep_last: 3, keep_last_aggressive: 1, max_output_bytes: 9000}
  summary: {model: offline, kind: llm, style: terse, max_tokens: 800, instructions: Keep names., timeout_seconds: 5}
  token_counter: chars
  pre_compact:
"""


def load(folder: Path, text: str, defaults: AgentDefaults = DEFAULTS) -> AgentRegistry:
    (folder / "agent.yaml").write_text(text)
    return load_agents([folder], defaults)


def refusal(folder: Path, text: str | bytes) -> str:
    (folder / "agent.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(AgentInvalid) as refused:
        load_agents([folder], DEFAULTS)
    assert str(folder / "agent.yaml") in refused.value.detail
    return refused.value.detail


# --- what is loaded -----------------------------------------------------------------------------------------------


def test_the_shipped_agents_follow_the_settings() -> None:
    agents = load_agents([], AgentDefaults(usage_threshold=0.66, summary_model="openai:small"))

    assert [agent.name for agent in agents.all()] == ["assistant", "quick_assistant", "researcher"]
    for agent in agents.all():
        assert agent.model == ""
        assert agent.context.usage_threshold == 0.66
        assert agent.context.summary.model == "openai:small"
        assert agent.tools == ("current_time", "calculator")


def test_a_summary_model_of_the_settings_is_not_looked_for_at_the_agents_server(tmp_path: Path) -> None:
    agent = load(
        tmp_path,
        "name: local\nmodel: openai:local\nbase_url: http://127.0.0.1:8080/v1\n",
        AgentDefaults(usage_threshold=0.8, summary_model="openai:small"),
    ).get("local")

    assert (agent.context.summary.model, agent.context.summary.base_url) == ("openai:small", None)


def test_the_shipped_assistant_writes_down_the_defaults() -> None:
    context = load_agents([], AgentDefaults(usage_threshold=0.8, summary_model="")).get("assistant").context

    assert context == ContextPolicy()


def test_the_quick_assistant_summarises_early_and_the_researcher_late() -> None:
    agents = load_agents([], DEFAULTS)
    quick, researcher = agents.get("quick_assistant").context, agents.get("researcher").context

    assert (quick.max_messages_before_summary, quick.max_tokens_before_summary) == (15, 32_000)
    assert quick.adopt is Adopt.IMMEDIATELY
    assert (researcher.max_messages_before_summary, researcher.max_tokens_before_summary) == (50, 180_000)
    assert researcher.adopt is Adopt.AT_THRESHOLD


def test_every_field_is_carried(tmp_path: Path) -> None:
    assert load(tmp_path, EVERYTHING).get("everything") == AgentDefinition(
        name="everything",
        description="Writes every field.",
        model="openai:gpt-4o",
        base_url="http://127.0.0.1:8080/v1",
        system_prompt="Be brief.",
        tools=("current_time", "own_tools:weather"),
        max_tool_rounds=0,
        context=ContextPolicy(
            auto_summarize=False,
            usage_threshold=0.6,
            target=0.3,
            max_messages_before_summary=12,
            max_tokens_before_summary=9_000,
            adopt=Adopt.IMMEDIATELY,
            min_recent_messages=4,
            response_reserve=1_000,
            window=16_000,
            prune=PrunePolicy(0.5, 0.6, 0.7, 3, 1, 9_000),
            summary=SummaryPolicy(
                "offline", "http://127.0.0.1:8080/v1", SummaryKind.LLM, "terse", 800, "Keep names.", 5.0
            ),
            token_counter="chars",
        ),
    )


def test_a_name_is_all_an_agent_needs(tmp_path: Path) -> None:
    agent = load(tmp_path, "name: bare").get("bare")

    assert agent == AgentDefinition(name="bare", context=ContextPolicy(usage_threshold=0.7))


def test_an_empty_field_is_as_if_it_were_not_written(tmp_path: Path) -> None:
    agent = load(tmp_path, "name: bare\ntools:\nmax_tool_rounds:\ncontext:\n  prune:\n  summary: {kind:}").get("bare")

    assert agent == AgentDefinition(name="bare", context=ContextPolicy(usage_threshold=0.7))


def test_the_window_may_be_called_max_context_tokens(tmp_path: Path) -> None:
    agents = load(tmp_path, "name: bare\ncontext: {max_context_tokens: 2048}")

    assert agents.get("bare").context.window == 2048


def test_the_agents_own_values_win_over_the_settings(tmp_path: Path) -> None:
    written = "name: own\nmodel: openai:a\ncontext:\n  usage_threshold: 0.9\n  summary:\n    model: openai:b"

    agent = load(tmp_path, written, AgentDefaults(usage_threshold=0.5, summary_model="openai:c")).get("own")

    assert (agent.model, agent.context.usage_threshold, agent.context.summary.model) == ("openai:a", 0.9, "openai:b")


def test_a_folder_adds_agents_and_overrides_shipped_ones(tmp_path: Path) -> None:
    agents = load(tmp_path, "name: assistant\nsystem_prompt: Mine.")

    assert agents.get("assistant").system_prompt == "Mine."
    assert len(agents.all()) == 3


def test_only_visible_yaml_files_are_agents(tmp_path: Path) -> None:
    for name in ("notes.txt", ".hidden.yaml", "agent.yaml~"):
        (tmp_path / name).write_text("not an agent")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "more.yml").write_text("name: more")

    assert load_agents([tmp_path], DEFAULTS).get("more").name == "more"


def test_text_is_cleaned(tmp_path: Path) -> None:
    assert load(tmp_path, 'name: bare\nsystem_prompt: "a\\0b"').get("bare").system_prompt == "a\ufffdb"


def test_an_unknown_agent_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"'nobody'.*assistant, quick_assistant, researcher"):
        load_agents([], DEFAULTS).get("nobody")


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: offline", ["name: missing"]),
        ("name: Bad Name", ["name: 'Bad Name'", "[a-z][a-z0-9_-]{0,63}"]),
        ('name: "a\\n"', ["name:"]),
        ("name: yes", ["name: True", "text", "quote"]),
        ("name: a\nmax_tool_rounds: 101", ["max_tool_rounds: 101", "at most 100"]),
        ("name: a\nmax_tool_rounds: -1", ["max_tool_rounds: -1", "at least 0"]),
        ("name: a\nmax_tool_rounds: '5'", ["max_tool_rounds: '5'", "whole number"]),
        ("name: a\nmax_tool_rounds: true", ["max_tool_rounds: True", "whole number"]),
        ("name: a\nmodel: gpt 4", ["model: 'gpt 4'", "white space"]),
        ("name: a\nbase_url: ftp://user:secret@host/", ["base_url: 'ftp://host/'", "http://"]),
        ("name: a\nbase_url: 'http://[x'", ["base_url:", "http"]),
        ("name: a\ntools: calculator", ["tools: 'calculator'", "list"]),
        ("name: a\ntools: [calculator, 5]", ["tools[1]: 5", "text"]),
        ("name: a\ntools: [rm -rf]", ["tools[0]: 'rm -rf'", "module:attribute"]),
        ("name: a\ntools: [calculator, calculator]", ["tools:", "calculator more than once"]),
        ("name: a\nsystem_promt: x", ["system_promt: no such field", "did you mean system_prompt?", "allowed: name,"]),
        ("name: a\ncolour: red", ["colour: no such field; allowed: name, description, model,"]),
        ("name: a\n1: red", ["1: no such field"]),
        ("name: a\nkeep_recents:", ["keep_recents: no such field"]),
        ("name: a\ncontext: big", ["context: 'big'", "mapping"]),
        ("name: a\ncontext: {windows: 5}", ["context.windows: no such field", "window"]),
        ("name: a\ncontext: {window: 1023}", ["context.window: 1023", "at least 1024"]),
        ("name: a\ncontext: {max_context_tokens: 9}", ["context.max_context_tokens: 9", "at least 1024"]),
        ("name: a\ncontext: {window: 2000, max_context_tokens: 2000}", ["context.max_context_tokens", "one of them"]),
        ("name: a\ncontext: {adopt: soon}", ["context.adopt: 'soon'", "at_threshold or immediately"]),
        (
            "name: a\ncontext: {strategy: truncation}",
            ["context.strategy: 'truncation' is not available", "allowed: summ"],
        ),
        ("name: a\ncontext: {strategy: magic}", ["context.strategy: 'magic'", "allowed: summarization"]),
        ("name: a\ncontext: {keep_recent: 5}", ["context.keep_recent", "not available in this version"]),
        ("name: a\ncontext: {pre_compact: 'a:b'}", ["context.pre_compact: 'a:b' is not available in this version"]),
        ("name: a\ncontext: {auto_summarize: maybe}", ["context.auto_summarize: 'maybe'", "true or false"]),
        ("name: a\ncontext: {usage_threshold: 0.96}", ["context.usage_threshold: 0.96", "at most 0.95"]),
        ("name: a\ncontext: {usage_threshold: .nan}", ["context.usage_threshold: nan"]),
        ("name: a\ncontext: {target: 0.7}", ["context.target: 0.7", "below", "CONTEXT_USAGE_THRESHOLD"]),
        ("name: a\ncontext: {target: 0.5, usage_threshold: 0.5}", ["context.target: 0.5", "which is 0.5"]),
        ("name: a\ncontext: {prune: {start: 0.9}}", ["context.prune", "start 0.9, aggressive 0.85"]),
        ("name: a\ncontext: {prune: {keep_last: 1}}", ["context.prune", "keep_last_aggressive 2 above keep_last 1"]),
        ("name: a\ncontext: {prune: {starts: 0.9}}", ["context.prune.starts: no such field; did you mean start?"]),
        ("name: a\ncontext: {summary: {kind: poem}}", ["context.summary.kind: 'poem'", "hybrid or llm"]),
        ("name: a\ncontext: {summary: {timeout_seconds: 0}}", ["context.summary.timeout_seconds: 0", "above 0"]),
        (
            "name: a\ncontext: {token_counter: magic}",
            ["context.token_counter: 'magic'", "tiktoken, tiktoken:<encoding>"],
        ),
        ("", ["empty"]),
        ("# nothing but words\n", ["empty"]),
        ("- a\n- b", ["['a', 'b'] is not an agent", "mapping"]),
        ("just text", ["'just text' is not an agent"]),
        ("name: [a", ["line 1, column 9"]),
        ("name: a\n\tmodel: b", ["line 2, column 1"]),
        ("name: a\nname: b", ["line 2, column 1", "name is written twice"]),
        ("name: a\n---\nname: b", ["line 2"]),
        ("name: &n a\nmodel: *n", ["line 1, column 7", "alias"]),
        ("name: a\nmodel: !!python/object:os.system x", ["line 2, column 8"]),
        ("name: 2024-99-99", ["quote it"]),
        ("[" * 5_000, ["nested too deeply"]),
        ("name: \x07", ["line 1"]),
        ("x" * 300_000, ["too large", "262144"]),
        (b"name: \xff\xfe", ["byte 6 is not UTF-8"]),
        ("name: a\nsystem_prompt: [" + "x, " * 1_000 + "]", ["system_prompt: ['x', 'x'", "…", "text"]),
    ],
)
def test_a_wrong_file_is_refused_with_field_value_and_what_is_allowed(
    tmp_path: Path, text: str | bytes, words: list[str]
) -> None:
    told = refusal(tmp_path, text)

    for word in words:
        assert word in told
    assert "secret" not in told


def test_all_that_is_wrong_in_all_files_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("")

    told = refusal(tmp_path, "name: A\nmax_tool_rounds: x\ncontext: {window: 1, adpot: x}")

    for word in ("name: 'A'", "max_tool_rounds: 'x'", "context.window: 1", "adpot", "other.yaml: the file is empty"):
        assert word in told


def test_a_flood_of_mistakes_is_cut(tmp_path: Path) -> None:
    told = refusal(tmp_path, "name: a\n" + "\n".join(f"field_{n}: 1" for n in range(500)))

    assert "and 480 more" in told


def test_two_files_of_one_folder_cannot_share_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: twin")
    (tmp_path / "b.yaml").write_text("name: twin")

    with pytest.raises(AgentInvalid, match=r"b\.yaml:\n  name: 'twin' is the name of a\.yaml too"):
        load_agents([tmp_path], DEFAULTS)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")

    with pytest.raises(AgentInvalid, match=r"dangling\.yaml: cannot be read \(No such file"):
        load_agents([tmp_path], DEFAULTS)


def test_what_is_no_regular_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "device.yaml").symlink_to("/dev/zero")

    with pytest.raises(AgentInvalid, match=r"device\.yaml: is not a regular file"):
        load_agents([tmp_path], DEFAULTS)


@pytest.mark.parametrize("name", ["missing", "file.txt"])
def test_a_missing_folder_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")

    with pytest.raises(SettingInvalid, match=f"AGENTS_DIR.*{name}"):
        load_agents([tmp_path / name], DEFAULTS)
