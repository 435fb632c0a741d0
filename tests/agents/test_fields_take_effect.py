"""Every field of a context policy changes what the service does: none is accepted and then passed over."""

from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path

import pytest

from context.strategies import Said, conversation_input
from fakes.compactions import SUMMARY, asked, compact_now, fill
from fakes.own_hooks import OwnHooks, Remembers
from fakes.scripted_model import Say, ScriptedModel
from fakes.stage import open_stage, with_context
from throughline.agents.context_schema import ContextSection, PruneSection, Section, SummarySection
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.agents.yaml_schema import ParametersSection
from throughline.context.compaction.decide_compaction import background_trigger
from throughline.context.fit_prompt import fit_view
from throughline.context.plan_context import plan_context
from throughline.context.policy import (
    Adopt,
    ContextPolicy,
    PrunePolicy,
    Strategy,
    SummaryKind,
    SummaryPolicy,
    SummaryShape,
)
from throughline.db.database import Database
from throughline.domain.errors import AgentInvalid
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import NO_PARAMETERS, ModelParameters, OverrideField
from throughline.llm.counters import counter_of
from throughline.ports.models import ChatModel
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary.compaction import Compaction

WINDOW = 8192


def talk(messages: int, words: int = 20) -> list[Said]:
    return [Said((Role.USER, Role.ASSISTANT)[number % 2], "word " * words) for number in range(messages)]


def answers(number: int, words: int) -> list[Said]:
    return [Said(Role.USER, "And what comes after all of that?"), Said(Role.ASSISTANT, "word " * words)] * number


def tool_use(*words: int) -> list[Said]:
    """One turn with a tool call for each number, whose output has so many words."""
    said = [Said(Role.USER, "Look it all up.")]
    for number, size in enumerate(words):
        call = ToolCall(f"c{number}", "search", "{}")
        said += [Said(Role.ASSISTANT, "", (call,)), Said(Role.TOOL, "word " * size, tool_call_id=call.id)]
    return [*said, Said(Role.ASSISTANT, "That is all.")]


def prompt_and_plan(policy: ContextPolicy, said: list[Said]) -> object:
    """What is planned and sent for a further user message."""
    plan = plan_context(conversation_input(said, policy=policy, window=WINDOW))
    fitted = fit_view(plan.view)
    return (
        plan.fired,
        plan.decision.trigger,
        plan.decision.through_position,
        background_trigger(plan.view),
        fitted.notes,
        fitted.prompt,
    )


TRUNCATION, IMPORTANCE = Strategy.TRUNCATION, Strategy.IMPORTANCE
UNSUMMARISED: dict[str, object] = {"auto_summarize": False}
TOOLS = tool_use(*[600] * 8)  # 0.76 of the window
AGREED = [Said(Role.USER, "ok"), Said(Role.ASSISTANT, "ok")] * 75  # 0.09 of it
ACKNOWLEDGED = [*AGREED, *[Said(Role.USER, "word " * 151), Said(Role.ASSISTANT, "ok")] * 30]  # 0.82 of it

LOOKED_UP = tool_use(*[200] * 8)
WHOLE = PrunePolicy(start=0.96, aggressive=0.97, critical=0.98)
BUILD = Said(Role.ASSISTANT, "The build is rel/4471.2 now. " * 20)
REFERRED = [BUILD, *answers(25, words=300), Said(Role.USER, "Is rel/4471.2 it")]

IN_THE_ENGINE: list[tuple[str, object, dict[str, object], list[Said]]] = [
    ("strategy", TRUNCATION, {}, talk(40, words=180)),
    ("auto_summarize", False, {}, talk(40, words=180)),
    ("usage_threshold", 0.3, {}, talk(10, words=300)),
    ("target", 0.2, {}, talk(40, words=180)),
    ("max_messages_before_summary", 10, {}, talk(12)),
    ("max_tokens_before_summary", 100, {}, talk(12)),
    ("adopt", Adopt.IMMEDIATELY, {}, talk(40)),
    ("min_recent_messages", 20, {"adopt": Adopt.IMMEDIATELY}, talk(40)),
    ("response_reserve", 2000, UNSUMMARISED, talk(30, words=190)),
    ("keep_recent", 4, {"strategy": TRUNCATION}, talk(40, words=180)),
    ("min_score_threshold", 0.0, {"strategy": IMPORTANCE, "target": 0.745}, ACKNOWLEDGED),
    ("target_tokens", 2_000, {}, talk(40, words=180)),
    ("importance.user", 0.0, {"strategy": IMPORTANCE}, talk(40, words=180)),
    ("importance.tool_use", 0.0, {"strategy": IMPORTANCE, "prune": WHOLE}, [*LOOKED_UP, *answers(20, words=300)]),
    ("importance.referenced", 0.0, {"strategy": IMPORTANCE}, REFERRED),
    ("importance.long_answer", 1.0, {"strategy": IMPORTANCE}, talk(40, words=180)),
    ("importance.short_answer", 1.0, {"strategy": IMPORTANCE}, [*answers(20, words=30), *answers(22, words=300)]),
    ("importance.acknowledgement", 0.9, {"strategy": IMPORTANCE, "target": 0.745}, ACKNOWLEDGED),
    ("prune.start", 0.80, UNSUMMARISED, TOOLS),
    ("prune.aggressive", 0.71, UNSUMMARISED | {"prune": PrunePolicy(keep_last=7)}, TOOLS),
    ("prune.critical", 0.86, UNSUMMARISED | {"response_reserve": 16}, talk(30, words=195)),
    ("prune.keep_last", 3, UNSUMMARISED, TOOLS),
    ("prune.keep_last_aggressive", 1, UNSUMMARISED | {"prune": PrunePolicy(start=0.1, aggressive=0.2)}, TOOLS),
    ("prune.min_freed", 0.5, UNSUMMARISED, TOOLS),
    ("prune.max_output_bytes", 1_000, {}, tool_use(500)),
]

IN_TURNS = ("recall", "memories")
"""Fields that act beside the engine: `tests/turn/test_quoted_history.py`, `tests/turn/test_quoted_memories.py`."""

IN_SUMMARIES: list[tuple[str, object]] = [
    ("window", 4096),
    ("token_counter", "tiktoken"),
    ("pre_compact", "hooks:own"),
    ("summary.model", "small"),
    ("summary.base_url", "http://127.0.0.1:9/v1"),
    ("summary.api_key_env", "SUMMARY_KEY"),
    ("summary.kind", SummaryKind.LLM),
    ("summary.shape", SummaryShape.ROLLING),
    ("summary.style", "terse"),
    ("summary.max_tokens", 50),
    ("summary.instructions", "Keep all names."),
    ("summary.timeout_seconds", 20.0),
    ("summary.chunk_messages", 2),
]


def changed(policy: ContextPolicy, name: str, value: object) -> ContextPolicy:
    part, dot, rest = name.partition(".")
    if not dot:
        return replace(policy, **{name: value})  # type: ignore[arg-type]  # fields by name
    return replace(policy, **{part: replace(getattr(policy, part), **{rest: value})})


def leaves(value: object, prefix: str = "") -> Iterator[str]:
    for name in asdict(value):  # type: ignore[call-overload]  # a dataclass, as the caller has seen
        part = getattr(value, name)
        if is_dataclass(part):
            yield from leaves(part, f"{name}.")
        else:
            yield prefix + name


def test_every_field_has_a_case_here() -> None:
    tested = [name for name, *_ in IN_THE_ENGINE] + [name for name, _ in IN_SUMMARIES] + [*IN_TURNS]

    assert sorted(tested) == sorted(leaves(ContextPolicy()))


@pytest.mark.parametrize(("name", "value", "base", "said"), IN_THE_ENGINE, ids=[case[0] for case in IN_THE_ENGINE])
def test_a_field_changes_what_is_planned_or_sent(
    name: str, value: object, base: dict[str, object], said: list[Said]
) -> None:
    policy = ContextPolicy(**{"response_reserve": 300} | base)  # type: ignore[arg-type]  # fields by name

    assert prompt_and_plan(changed(policy, name, value), said) != prompt_and_plan(policy, said)


class RememberedModels:
    """Hands out one model, and keeps where it was looked for."""

    def __init__(self, model: ScriptedModel) -> None:
        self.asked_for: list[tuple[str, str | None, str | None]] = []
        self._model = model

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        self.asked_for.append((model, base_url, api_key_env))
        return self._model


async def summarising(database: Database, policy: ContextPolicy) -> object:
    """What a summary on demand is made of and leads to."""
    stage = await open_stage(database, agent=with_context(**{f.name: getattr(policy, f.name) for f in fields(policy)}))
    models, hook = RememberedModels(stage.model), Remembers()
    stage.dependencies = replace(stage.dependencies, models=models, hooks=OwnHooks({"hooks:own": hook}))
    stage.model.by_request = lambda _: Say(SUMMARY + " Read /srv/data/report-17.csv." * 20)
    await fill(stage, 6, words=80)
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = plan_context(make_context_input(agent, conversation, None))
    limit = Compaction(agent, conversation, plan).limit_seconds
    done = await compact_now(stage)
    requests = [(asked(request), request.max_output_tokens) for request in stage.model.requests]
    told = [event.tokens for event in hook.told]
    return agent.budget, agent.counter.name, limit, models.asked_for, requests, told, done.detail


@pytest.mark.parametrize(("name", "value"), IN_SUMMARIES, ids=[case[0] for case in IN_SUMMARIES])
async def test_a_field_changes_how_a_summary_is_written(database: Database, name: str, value: object) -> None:
    summary = SummaryPolicy(model="small", max_tokens=900, chunk_messages=4)
    policy = ContextPolicy(token_counter="chars", min_recent_messages=2, summary=summary)
    if name == "summary.model":
        policy = changed(policy, "summary.model", "")

    assert await summarising(database, changed(policy, name, value)) != await summarising(database, policy)


@pytest.mark.parametrize(
    ("section", "policy", "renamed"),
    [
        (PruneSection, PrunePolicy, {}),
        (SummarySection, SummaryPolicy, {"base_url": None, "api_key_env": None, "chunk_messages": None}),
        (ContextSection, ContextPolicy, {}),
    ],
)
def test_a_section_has_the_fields_of_its_policy(
    section: type[Section], policy: type[ContextPolicy], renamed: dict[str, None]
) -> None:
    assert {field.name for field in fields(policy)} - renamed.keys() <= section.model_fields.keys()


DEFAULTS = AgentDefaults(usage_threshold=0.8, summary_model="", counter_of=counter_of)


def load(folder: Path, text: str) -> AgentDefinition:
    (folder / "own.yaml").write_text(f"name: own\n{text}\n")
    return load_agents([folder], DEFAULTS).get("own")


def test_an_agent_allows_nothing_unless_its_file_says_so(tmp_path: Path) -> None:
    agent = load(tmp_path, "")

    assert (agent.overrides, agent.override_models) == (frozenset(), ())
    shipped = {one.name: one.overrides for one in load_agents([], DEFAULTS).all()}
    assert shipped.pop("assistant") == {OverrideField.INSTRUCTIONS, OverrideField.RESPONSE_FORMAT}
    assert set(shipped.values()) == {frozenset()}


def test_models_are_names_or_mappings_with_their_own_counters(tmp_path: Path) -> None:
    agent = load(
        tmp_path,
        "overrides: [model, temperature, instructions, response_format]\n"
        "override_models:\n"
        "  - openai:gpt-4o\n"
        "  - {model: openai:own, base_url: http://127.0.0.1:1/v1, window: 9000, parameters: {top_p: 0.5}}",
    )

    assert agent.overrides == frozenset(OverrideField)
    assert agent.override_models == (
        OtherModel("openai:gpt-4o", token_counter="tiktoken:o200k_base"),
        OtherModel(
            "openai:own", "http://127.0.0.1:1/v1", None, 9000, ModelParameters(top_p=0.5), token_counter="tiktoken"
        ),
    )
    assert [variant.context.window for variant in agent.variants()] == [None, None, 9000]
    assert [variant.context.token_counter for variant in agent.variants()] == [
        "tiktoken",
        "tiktoken:o200k_base",
        "tiktoken",
    ]


def test_a_counter_that_the_file_names_counts_for_all_models(tmp_path: Path) -> None:
    agent = load(tmp_path, "overrides: [model]\noverride_models: [openai:gpt-4o]\ncontext: {token_counter: chars}")

    assert [variant.context.token_counter for variant in agent.variants()] == ["chars", "chars"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("overrides: [tools]", "overrides[0]: tools is not allowed; allowed: model, temperature, instructions or "),
        ("overrides: model", "overrides: model must be a list"),
        ("overrides: [model]", "override_models: [] must name the models, because `overrides` has model"),
        ("override_models: [a:b]", "needs `model` in `overrides`"),
        ("overrides: [model]\noverride_models: [a:b, {model: a:b}]", "names a model more than once"),
        ("overrides: [model]\noverride_models: [{base_url: http://a/v1}]", "override_models[0].model: missing; write"),
        ("overrides: [model, model]\noverride_models: [a:b]", "overrides: [model, model] names model more than once"),
    ],
)
def test_mistakes_are_told_with_field_value_and_what_is_allowed(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(AgentInvalid) as refused:
        load(tmp_path, text)

    assert told in refused.value.detail.replace("'", "")


ALL = """
  temperature: 0.2
  top_p: 0.9
  seed: 7
  stop: ["END", "\\n\\n"]
  reasoning_effort: low
  parallel_tool_calls: false
  headers: {X-Team: search}
  body: {top_k: 20, chat_template_kwargs: {enable_thinking: false}}
"""


def load_parameters(folder: Path, parameters: str) -> ModelParameters:
    (folder / "a.yaml").write_text(f"name: a\nparameters:{parameters}")
    return load_agents([folder], AgentDefaults(usage_threshold=0.8, summary_model="")).get("a").parameters


def test_every_parameter_is_read(tmp_path: Path) -> None:
    assert load_parameters(tmp_path, ALL) == ModelParameters(
        temperature=0.2,
        top_p=0.9,
        seed=7,
        stop=("END", "\n\n"),
        reasoning_effort="low",
        parallel_tool_calls=False,
        headers={"X-Team": "search"},
        body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
    )
    assert ParametersSection.model_fields.keys() == {declared.name for declared in fields(ModelParameters)}


def test_what_is_empty_is_not_sent(tmp_path: Path) -> None:
    assert (
        load_parameters(tmp_path, "")
        == load_parameters(tmp_path, "\n  temperature:\n  stop: []\n  body: {}")
        == NO_PARAMETERS
    )
    assert dict(NO_PARAMETERS.given()) == {}


def test_zero_and_false_are_sent(tmp_path: Path) -> None:
    read = load_parameters(tmp_path, "\n  temperature: 0\n  seed: 0\n  parallel_tool_calls: false")

    assert dict(read.given()) == {"temperature": 0.0, "seed": 0, "parallel_tool_calls": False}


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("{temperature: 2.1}", "parameters.temperature: 2.1 must be at most 2"),
        ("{temperature: .nan}", "parameters.temperature: nan must be a number"),
        ("{temperature: warm}", "parameters.temperature: 'warm' must be a number"),
        ("{top_p: 0}", "parameters.top_p: 0 must be above 0"),
        ("{seed: 1.5}", "parameters.seed: 1.5 must be a whole number"),
        ("{stop: END}", "parameters.stop: 'END' must be a list"),
        ("{stop: ['']}", "parameters.stop[0]: '' must have at least 1 character"),
        ("{stop: [a, b, c, d, e]}", "parameters.stop: ['a', 'b', 'c', 'd', 'e'] must have at most 4 items"),
        ("{reasoning_effort: hard}", "parameters.reasoning_effort: 'hard' is not allowed; allowed: none, minimal"),
        ("{headers: {'a b': x}}", "parameters.headers: has the name 'a b', which is no name of an HTTP header"),
        ("{headers: {X-Api-Key: s3cret}}", "parameters.headers: has X-Api-Key, which the service sets itself"),
        ("{headers: {X-Team: 'ä-s3cret'}}", "parameters.headers: has a value for X-Team with other characters"),
        ("{body: {messages: []}}", "parameters.body: has messages, which the service sets itself"),
        ("{body: {temperature: 1}}", "write it beside `body`, as parameters.temperature"),
        ("{body: {day: 2026-01-01}}", "parameters.body"),
        ("{body: {x: .inf}}", "parameters.body"),
        ("{max_tokens: 5}", "parameters.max_tokens: no such field"),
    ],
)
def test_what_cannot_be_sent_is_refused(tmp_path: Path, written: str, complaint: str) -> None:
    with pytest.raises(AgentInvalid) as caught:
        load_parameters(tmp_path, f" {written}")

    assert complaint in caught.value.detail
    assert "s3cret" not in caught.value.detail
