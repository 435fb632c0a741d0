import re
from dataclasses import replace
from pathlib import Path

import pytest

from throughline.agents.context_schema import (
    ContextSection,
    ImportanceSection,
    PruneSection,
    Section,
    SummarySection,
    field_names,
)
from throughline.agents.definition import AgentDefinition, RecallReach
from throughline.agents.read_file import OTHER_NAMES
from throughline.agents.registry import SHIPPED, AgentDefaults, AgentRegistry, load_agents
from throughline.agents.yaml_schema import AgentFile, section_at
from throughline.context.policy import (
    Adopt,
    ContextPolicy,
    PrunePolicy,
    Recall,
    Strategy,
    SummaryKind,
    SummaryPolicy,
    SummaryShape,
)
from throughline.domain.errors import AgentInvalid
from throughline.llm.counters import counter_of

ROOT = Path(__file__).parents[2]
DEFAULTS = AgentDefaults(usage_threshold=0.7, summary_model="")

EVERYTHING = """
name: everything
description: Writes every field.
model: openai:gpt-4o
base_url: http://127.0.0.1:8080/v1
api_key_env: GATEWAY_KEY
system_prompt: Be brief.
tools: [current_time, "own_tools:weather"]
recall: user
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
  prune:
    {start: 0.5, aggressive: 0.6, critical: 0.7, keep_last: 3, keep_last_aggressive: 1, min_freed: 0.2,
     max_output_bytes: 9000}
  summary: {model: offline, kind: llm, shape: tiered, style: terse, instructions: Keep names., timeout_seconds: 5}
  token_counter: chars
  pre_compact: own_hooks:before
  summarize_chunk_size: 40
  max_summary_tokens: 800
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
        api_key_env="GATEWAY_KEY",
        system_prompt="Be brief.",
        tools=("current_time", "own_tools:weather"),
        max_tool_rounds=0,
        recall=RecallReach.USER,
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
            prune=PrunePolicy(0.5, 0.6, 0.7, 3, 1, 0.2, 9_000),
            summary=SummaryPolicy(
                model="offline",
                base_url="http://127.0.0.1:8080/v1",
                api_key_env="GATEWAY_KEY",
                kind=SummaryKind.LLM,
                shape=SummaryShape.TIERED,
                style="terse",
                max_tokens=800,
                instructions="Keep names.",
                timeout_seconds=5.0,
                chunk_messages=40,
            ),
            token_counter="chars",
            pre_compact="own_hooks:before",
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


@pytest.mark.parametrize("written", ["off", "'off'", "false"])
def test_recall_and_memories_are_turned_off_by_the_bare_word(tmp_path: Path, written: str) -> None:
    context = load(tmp_path, f"name: a\ncontext:\n  recall: {written}\n  memories: {written}\n").get("a").context

    assert context.recall is context.memories is Recall.OFF


def test_each_strategy_has_its_own_options(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ncontext: {strategy: truncation, keep_recent: 2}")
    (tmp_path / "b.yaml").write_text("name: b\ncontext: {strategy: importance, min_score_threshold: 1}")
    (tmp_path / "c.yaml").write_text("name: c\ncontext: {min_score_threshold: , keep_recent: , summarize_chunk_size: }")

    agents = load_agents([tmp_path], DEFAULTS)

    truncation, importance = agents.get("a").context, agents.get("b").context
    assert (truncation.strategy, truncation.keep_recent) == (Strategy.TRUNCATION, 2)
    assert (importance.strategy, importance.min_score_threshold) == (Strategy.IMPORTANCE, 1.0)
    assert agents.get("c").context == ContextPolicy(usage_threshold=0.7)


def test_the_most_tokens_of_a_summary_may_be_written_in_either_place(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ncontext: {max_summary_tokens: 700}")
    (tmp_path / "b.yaml").write_text("name: b\ncontext: {summary: {max_tokens: 700}, max_summary_tokens: }")

    agents = load_agents([tmp_path], DEFAULTS)

    assert agents.get("a").context.summary == agents.get("b").context.summary == SummaryPolicy(max_tokens=700)


@pytest.mark.parametrize(
    "counter",
    [
        "tiktoken",
        "tiktoken:o200k_base",
        "chars",
        "transformers:Qwen/Qwen3-0.6B",
        "transformers:/srv/models/my model/tokenizer.json",
        "own_counters:count_words",
    ],
)
def test_a_counter_may_be_named_in_five_ways(tmp_path: Path, counter: str) -> None:
    agents = load(tmp_path, f"name: a\ncontext: {{token_counter: '{counter}'}}")

    assert agents.get("a").context.token_counter == counter


def test_text_is_cleaned(tmp_path: Path) -> None:
    assert load(tmp_path, 'name: bare\nsystem_prompt: "a\\0b"').get("bare").system_prompt == "a\ufffdb"


def test_with_immediate_summaries_n_may_be_four_above_what_stays(tmp_path: Path) -> None:
    written = "name: a\ncontext: {adopt: immediately, max_messages_before_summary: 10}"

    assert load(tmp_path, written).get("a").context.max_messages_before_summary == 10


@pytest.mark.parametrize("strategy", ["truncation", "importance"])
def test_how_summaries_are_written_may_be_said_with_any_strategy(tmp_path: Path, strategy: str) -> None:
    agents = load(tmp_path, f"name: a\ncontext: {{strategy: {strategy}, summary: {{style: terse}}}}")

    assert agents.get("a").context.summary.style == "terse"


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
        ("name: a\nbase_url: http://x\napi_key_env: sk-1", ["api_key_env: must be the name", "never the key itself"]),
        (
            "name: a\napi_key_env: GATEWAY_KEY",
            ["api_key_env: needs base_url or model: the server or the provider that the key is for"],
        ),
        ("name: a\nbase_url: 'http://[x'", ["base_url:", "http"]),
        ("name: a\nbase_url: http://user:secret@x y/", ["base_url: 'http://x y/'", "without white space"]),
        ("name: a\nbase_url: http://user:a secret@x/", ["base_url: 'http://x/'", "without white space"]),
        ("name: a\nbase_url: http://user:a/secret@x/", ["base_url: 'http://x/' must be an address"]),
        ("name: a\ntools: calculator", ["tools: 'calculator'", "list"]),
        (
            "name: a\nfallback_models: [{model: offline, tools: [calculator]}]",
            ["fallback_models[0].tools: no such field", "allowed: model, base_url, api_key_env, window, parameters"],
        ),
        (
            "name: a\nfallback_models: [{model: offline, parameters: {top_pp: 1}}]",
            ["fallback_models[0].parameters.top_pp: no such field; did you mean top_p"],
        ),
        ("name: a\ndaily_budget: {usd: 0}", ["daily_budget.usd: 0", "above 0"]),
        ("name: a\ndaily_budget: {tokens: 1.5}", ["daily_budget.tokens: 1.5", "whole number"]),
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
            "name: a\ncontext: {strategy: magic}",
            ["context.strategy: 'magic' is not allowed", "allowed: summarization, truncation or importance"],
        ),
        ("name: a\ncontext: {strategy: 5}", ["context.strategy: 5"]),
        (
            "name: a\ncontext: {keep_recent: 5, min_recent_messages: 8}",
            ["context: has keep_recent 5 and min_recent_messages 8", "strategy summarization: write only one of them"],
        ),
        (
            "name: a\ncontext: {adopt: immediately, keep_recent: 28}",
            ["context.keep_recent: 28 leaves too few messages", "at least 32 (keep_recent plus 4)"],
        ),
        ("name: a\ncontext: {target: 0.4, target_tokens: 900}", ["context.target_tokens: 900", "write only one"]),
        (
            "name: a\ncontext: {window: 8000, target_tokens: 5600}",
            ["context.target_tokens: 5600 must be below 5600, which is usage_threshold 0.7", "the window of 8000"],
        ),
        ("name: a\ncontext: {importance: {user: 1}}", ["context.importance: is an option of the strategy importance"]),
        (
            "name: a\ncontext: {strategy: importance, importance: {user: 1.2}}",
            ["context.importance.user: 1.2", "at most 1"],
        ),
        (
            "name: a\ncontext: {summary: {base_url: 'http://127.0.0.1:9/v1'}}",
            ["context.summary.base_url: 'http://127.0.0.1:9/v1' needs summary.model"],
        ),
        (
            "name: a\nbase_url: http://h/v1\ncontext: {summary: {model: small, api_key_env: KEY}}",
            ["context.summary.api_key_env: needs base_url, the address that the key is for"],
        ),
        (
            "name: a\ncontext: {min_score_threshold: 0.3}",
            ["context.min_score_threshold: 0.3", "write `strategy: importance`"],
        ),
        (
            "name: a\ncontext: {strategy: truncation, summarize_chunk_size: 5}",
            ["context.summarize_chunk_size: 5 is an option of the strategy summarization"],
        ),
        (
            "name: a\ncontext: {strategy: truncation, max_summary_tokens: 500}",
            ["context.max_summary_tokens: 500 is an option of the strategy summarization"],
        ),
        (
            "name: a\ncontext: {strategy: truncation, adopt: immediately}",
            ["context.adopt: 'immediately'", "is an option of the strategy summarization"],
        ),
        (
            "name: a\ncontext: {strategy: importance, max_messages_before_summary: 9, max_tokens_before_summary: 9}",
            [
                "context.max_messages_before_summary: 9 is an option",
                "context.max_tokens_before_summary: 9 is an option",
            ],
        ),
        (
            "name: a\ncontext: {adopt: immediately, max_messages_before_summary: 9}",
            [
                "context.min_recent_messages: 6 leaves too few messages",
                "at least 10 (min_recent_messages plus 4), not 9",
            ],
        ),
        (
            "name: a\ncontext: {min_recent_messages: 30, adopt: immediately}",
            ["context.min_recent_messages: 30 leaves too few messages", "not 30"],
        ),
        ("name: a\ncontext: {strategy: truncation, keep_recent: 1}", ["context.keep_recent: 1", "at least 2"]),
        ("name: a\ncontext: {strategy: truncation, keep_recent: 10001}", ["context.keep_recent: 10001", "10000"]),
        ("name: a\ncontext: {strategy: truncation, keep_recent: 2.5}", ["context.keep_recent: 2.5", "whole number"]),
        (
            "name: a\ncontext: {strategy: importance, min_score_threshold: 1.1}",
            ["context.min_score_threshold: 1.1", "at most 1"],
        ),
        (
            "name: a\ncontext: {strategy: importance, min_score_threshold: .nan}",
            ["context.min_score_threshold: nan", "number"],
        ),
        ("name: a\ncontext: {summarize_chunk_size: 1}", ["context.summarize_chunk_size: 1", "at least 2"]),
        ("name: a\ncontext: {summarize_chunk_size: many}", ["context.summarize_chunk_size: 'many'", "whole number"]),
        ("name: a\ncontext: {max_summary_tokens: 199}", ["context.max_summary_tokens: 199", "at least 200"]),
        (
            "name: a\ncontext: {max_summary_tokens: 500, summary: {max_tokens: 500}}",
            ["context.max_summary_tokens: 500 is another name of summary.max_tokens", "write only one of them"],
        ),
        ("name: a\ncontext: {keep_recents: 5}", ["context.keep_recents: no such field; did you mean keep_recent?"]),
        ("name: a\ncontext: {summary: {shape: round}}", ["context.summary.shape: 'round'", "rolling or tiered"]),
        ("name: a\ncontext: {pre_compact: before}", ["context.pre_compact: 'before' must be", "module:function"]),
        ("name: a\ncontext: {pre_compact: 'a:b.c'}", ["context.pre_compact: 'a:b.c' must be", "module:function"]),
        ("name: a\ncontext: {pre_compact: [a]}", ["context.pre_compact: ['a'] must be text"]),
        ("name: a\ncontext: {token_counter: 'transformers:'}", ["context.token_counter: 'transformers:'"]),
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
            ["context.token_counter: 'magic'", "tiktoken, tiktoken:<encoding>", "transformers:<name or path>"],
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
        ("name: a\ncontext: {window: 190:20:30}", ["context.window: YAML reads 190:20:30 as 685230; write the number"]),
        ("name: a\ncontext: {target: 1:30.5}", ["context.target: YAML reads 1:30.5 as 90.5"]),
        ("name: a\ncontext: {window: 0100000}", ["context.window: YAML reads 0100000 as 32768"]),
        ("010", ["the file: YAML reads 010 as 8"]),
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


def test_a_default_target_is_shown_below_a_low_threshold() -> None:
    agents = load_agents([], AgentDefaults(usage_threshold=0.3, summary_model=""))
    assert agents.get("assistant").context.target == 0.225


OPTION_ROW = re.compile(r"^\| `(.+?)` \| (accepted|.+) \|$", re.MULTILINE)


def refusal_options(folder: Path, text: str) -> str:
    (folder / "agent.yaml").write_text(text)
    with pytest.raises(AgentInvalid) as refused:
        load_agents([folder], DEFAULTS)
    return refused.value.detail


def test_recent_messages_are_kept_under_either_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ncontext: {keep_recent: 8}")
    (tmp_path / "b.yaml").write_text("name: b\ncontext: {strategy: importance, keep_recent: 9}")
    (tmp_path / "c.yaml").write_text("name: c\ncontext: {strategy: truncation, keep_recent: 9, min_recent_messages: 3}")
    (tmp_path / "d.yaml").write_text(
        "name: d\ncontext: {adopt: immediately, keep_recent: 2, max_messages_before_summary: 6}"
    )

    agents = load_agents([tmp_path], DEFAULTS)

    assert [agents.get(name).context.min_recent_messages for name in "abcd"] == [8, 9, 3, 2]
    assert [agents.get(name).context.keep_recent for name in "abcd"] == [20, 20, 9, 20]


def test_a_summary_model_has_its_own_address_and_key(tmp_path: Path) -> None:
    summary = "{model: small, base_url: 'http://summaries/v1', api_key_env: SUMMARY_KEY}"
    text = f"name: a\nbase_url: http://agents/v1\napi_key_env: AGENT_KEY\ncontext: {{summary: {summary}}}"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace(", api_key_env: SUMMARY_KEY", "").replace("name: a", "name: b"))

    agents = load_agents([tmp_path], DEFAULTS)

    own, beside = (agents.get(name).context.summary for name in "ab")
    assert (own.base_url, own.api_key_env) == ("http://summaries/v1", "SUMMARY_KEY")
    assert (beside.base_url, beside.api_key_env) == ("http://summaries/v1", None)  # the agent's key goes nowhere else


def test_tokens_are_counted_with_the_vocabulary_of_the_agents_model(tmp_path: Path) -> None:
    defaults = replace(DEFAULTS, counter_of=counter_of)
    (tmp_path / "a.yaml").write_text("name: a\nmodel: openai:gpt-4o\ncontext: {token_counter: tiktoken}")
    (tmp_path / "b.yaml").write_text("name: b\nmodel: openai:gpt-4o\ncontext: {token_counter: 'tiktoken:cl100k_base'}")
    (tmp_path / "c.yaml").write_text("name: c\nmodel: anthropic:claude-sonnet-4-5")

    agents = load_agents([tmp_path], defaults)

    counters = [agents.get(name).context.token_counter for name in "abc"]
    assert counters == ["tiktoken:o200k_base", "tiktoken:cl100k_base", "tiktoken"]


def test_the_page_of_option_names_tells_what_each_name_does(tmp_path: Path) -> None:
    page = dict(OPTION_ROW.findall((ROOT / "docs" / "reference" / "option-names.md").read_text()))
    context = field_names(ContextSection)

    assert {name for name, told in page.items() if told != "accepted"} == set(OTHER_NAMES)
    assert {name for name, told in page.items() if told == "accepted"} == set(context)
    for other, ours in OTHER_NAMES.items():
        told = f"context.{other}: no such field; write context.{ours}"
        assert told in refusal_options(tmp_path, f"name: a\ncontext: {{{other}: 5}}")
        assert page[other].replace("`", "") == ours
    for ours in re.findall(r"[\w.]+", " ".join(OTHER_NAMES.values()).replace(" or ", " ")):
        first, _, rest = ours.partition(".")
        assert first in context
        assert not rest or rest in field_names(section_at(("context", first)))
    assert "max_messages_before_summary: no such field; write context.max" in refusal_options(
        tmp_path, "name: a\nmax_messages_before_summary: 5"
    )


def test_the_shipped_assistant_names_every_field_there_is() -> None:
    text = (SHIPPED / "assistant.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"^ *(\w+):", text, re.MULTILINE)) | set(re.findall(r"\(also: (?:context\.)?(\w+)\)", text))
    sections: tuple[type[Section], ...] = (AgentFile, ContextSection, SummarySection, PruneSection)

    assert {name for section in sections for name in field_names(section)} - named == set()
    assert all(f"{name}: " in text for name in field_names(ImportanceSection))
