"""The windows of agents: who is asked at start, what is logged, and which number a turn uses."""

from dataclasses import dataclass, replace

from structlog.testing import capture_logs

from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.stage import AGENT, LEARNED_KEY, Stage, open_stage, with_context
from throughline.agents.registry import AgentRegistry
from throughline.context.calibration import Calibration
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.turn.check_agents import check_agents
from throughline.turn.prompting.agent_windows import agent_window, ask_windows, log_windows
from throughline.turn.prompting.ready_agent import assemble_agent


@dataclass
class NamedModel(ScriptedModel):
    """A scripted model with a name of its own."""

    def __init__(self, name: str, origin: WindowOrigin = WindowOrigin.TABLE) -> None:
        super().__init__()
        self.name = name
        self.window_origin = origin


async def test_each_model_is_asked_once_and_none_whose_window_is_in_the_file() -> None:
    models = {name: NamedModel(name) for name in ("shared", "summary", "written")}
    agents = [
        replace(AGENT, name="one", model="shared"),
        replace(AGENT, name="two", model="shared", context=replace(AGENT.context, summary=SummaryPolicy("summary"))),
        replace(with_context(window=32_000), name="three", model="written"),
    ]

    await ask_windows(agents, ScriptedModels(ScriptedModel(), **models))

    assert {name: model.times_asked for name, model in models.items()} == {"shared": 1, "summary": 1, "written": 0}


async def test_windows_are_logged_once_a_model_with_a_warning_for_the_unknown(database: Database) -> None:
    models = {"known": NamedModel("a-known"), "unknown": NamedModel("b-unknown", WindowOrigin.UNKNOWN)}
    agents = [
        replace(AGENT, name="one", model="known"),
        replace(AGENT, name="two", model="unknown"),
        replace(AGENT, name="three", model="unknown"),
        replace(with_context(window=32_000), name="four", model="unknown"),
    ]
    stage = await open_stage(database)
    stage.dependencies = replace(
        stage.dependencies, models=ScriptedModels(stage.model, **models), agents=AgentRegistry(agents)
    )

    ready = await check_agents(stage.dependencies, stage.dependencies.agents.all())
    with capture_logs() as logs:
        log_windows(ready)

    told = {tuple(log["agents"]): log for log in logs}
    assert told[("one",)]["event"] == "context window found"
    assert (told[("four",)]["window"], told[("four",)]["window_from"]) == (32_000, "agent file")
    warning = told["three", "two"]
    assert (warning["log_level"], warning["event"]) == ("warning", "context window unknown")
    assert (warning["model"], warning["window"], warning["window_from"]) == ("b-unknown", 8192, "unknown")
    assert "8,192 tokens are assumed: set context.window in the agent file" in warning["hint"]
    assert len(logs) == 3


async def test_the_hint_names_a_server_that_was_recognised_and_says_no_window(database: Database) -> None:
    stage = await open_stage(database)
    ready = await assemble_agent(stage.dependencies, AGENT)

    class Unloaded(ScriptedModel):
        window = ModelWindow(4096, WindowOrigin.UNKNOWN, "Ollama")

    with capture_logs() as logs:
        log_windows([replace(ready, model=Unloaded())])

    assert logs[0]["hint"].startswith("Ollama has not loaded the model")
    assert "4,096 tokens are assumed" in logs[0]["hint"]


async def test_a_name_that_is_only_like_a_known_one_is_warned_of(database: Database) -> None:
    stage = await open_stage(database)
    ready = await assemble_agent(stage.dependencies, AGENT)

    class Misspelt(ScriptedModel):
        window = ModelWindow(128_000, WindowOrigin.TABLE, neighbour="gpt-4o")

    with capture_logs() as logs:
        log_windows([replace(ready, model=Misspelt())])

    assert (logs[0]["log_level"], logs[0]["event"]) == ("warning", "context window guessed")
    assert "the window of gpt-4o, 128,000 tokens: check its spelling" in logs[0]["hint"]


async def test_a_turn_asks_the_server_before_its_budget_is_made(database: Database) -> None:
    class AskedModel(ScriptedModel):
        async def ask_window(self) -> None:
            self.context_limit = 40_960

    stage = await open_stage(database, model=AskedModel())

    ready = await assemble_agent(stage.dependencies, AGENT)

    assert ready.budget.window_tokens == 40_960


async def learned(stage: Stage, window: int) -> ModelWindow:
    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(1.0, 3, learned_window=window))
    return await agent_window(stage.dependencies, AGENT)


async def test_a_window_that_a_refusal_named_is_the_last_word(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.window_origin = WindowOrigin.SERVER

    before = await agent_window(stage.dependencies, AGENT)

    assert before == ModelWindow(8192, WindowOrigin.SERVER)
    assert await learned(stage, 6000) == ModelWindow(6000, WindowOrigin.LEARNED)
    assert (await assemble_agent(stage.dependencies, AGENT)).budget.window_tokens == 6000


async def test_the_window_of_the_agents_file_comes_before_the_models(database: Database) -> None:
    stage = await open_stage(database)

    assert await agent_window(stage.dependencies, with_context(window=4096)) == ModelWindow(
        4096, WindowOrigin.AGENT_FILE
    )
