"""Everything a turn needs around a real database: tools, a scripted model or the provider double, a session."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from fakes.conversations import claim_next
from fakes.own_hooks import OwnHooks
from fakes.provider_double import ProviderDouble, RequestRecord, Verdict
from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.silent_metrics import SilentMetrics
from fakes.tool_servers import PlayedServers
from fakes.waiting import HANG_SECONDS, ManualClock
from throughline.agent_graphs.imported_graphs import ImportedGraphs
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.measure import count_message
from throughline.context.policy import ContextPolicy
from throughline.db.database import Database
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.domain.basic_types import UserId
from throughline.domain.events import RunEvent
from throughline.domain.message import Content, Message, NewMessage, Role, Source, ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.run import ClaimedRun, Claimer, Run, RunInput, Submission
from throughline.domain.session import NewSession, Session
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.breaker import Breakers
from throughline.execution.lease_loop import Heartbeats
from throughline.llm.counters import make_counter
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.ports.hooks import Tools
from throughline.tools.built_in import make_built_in_tools
from throughline.tools.make_function_tool import CallLimits
from throughline.tools.toolbox import ToolBox
from throughline.turn.graph import build_graph
from throughline.turn.prompting.calibrate import CalibrationCache
from throughline.turn.prompting.ready_agent import calibration_key
from throughline.turn.recall.history_search import HistorySearch
from throughline.turn.state import TurnConfig, TurnDependencies
from throughline.turn.take_turn import TurnStart, take_turn


def make_tool_box(
    imported: Sequence[str] = (),
    timeout_seconds: float = HANG_SECONDS,
    max_result_bytes: int = 1_000_000,
    *,
    further: Sequence[Callable[..., object]] = (),
    now: Callable[[], float] = time.time,
) -> ToolBox:
    """Return a box with the built-in tools, `further` functions of the service, and imported ones."""
    tools = make_built_in_tools(*further, now=now)
    return ToolBox(tools, CallLimits(timeout_seconds, max_result_bytes), imported=imported)


@dataclass
class OneTool:
    """The tool `name`, which returns `result`; with `hangs_at_first` its first call never comes back."""

    name: str
    result: str
    repeatable: bool
    hangs_at_first: bool = False
    keys: list[str] = field(default_factory=list)

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        del names
        return (ToolSpec(self.name, "Does it.", {"type": "object", "properties": {}}),)

    def is_repeatable(self, name: str) -> bool:
        del name
        return self.repeatable

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        del call
        self.keys.append(context.idempotency_key)
        if self.hangs_at_first and len(self.keys) == 1:
            await asyncio.Event().wait()
        return ToolOutcome(self.result, is_error=False)


CLAIMER = Claimer(worker="test-worker", lease_seconds=10)
GRAPH = build_graph()
LEARNED_KEY = calibration_key(ScriptedModel(), make_counter("chars"))
"""Under which stands what the stage's agent has learned of how its model counts."""

AGENT = AgentDefinition(
    name="assistant",
    description="",
    model="",
    base_url=None,
    system_prompt="You are a helpful assistant.",
    tools=("calculator",),
    max_tool_rounds=3,
    context=ContextPolicy(token_counter="chars", response_reserve=512),
)


@dataclass
class Stage:
    """The parts of a turn with handles on the fakes among them."""

    database: Database
    model: ScriptedModel
    clock: ManualClock
    metrics: SilentMetrics
    dependencies: TurnDependencies
    owner_id: UserId
    session: Session

    async def submit(self, content: Content, *, key: str | None = None) -> Run:
        submission = Submission(
            owner_id=self.owner_id,
            session_id=self.session.id,
            input=RunInput(content),
            source=Source.API,
            idempotency_key=key,
            fingerprint=str(content),
        )
        return (await self.database.runs.submit(submission, None)).run

    async def submit_elsewhere(self, text: str, *, owner: str = "anna") -> Run:
        """Submit to a new session, of this owner."""
        owner_id = await self.database.users.get_or_create(owner)
        new = NewSession(owner_id=owner_id, agent=self.session.agent, title="", source=Source.API, metadata={})
        session, _ = await self.database.sessions.create(new)
        submission = Submission(owner_id, session.id, RunInput(text), Source.API, fingerprint=text)
        return (await self.database.runs.submit(submission, None)).run

    async def claim(self) -> ClaimedRun:
        claimed = await claim_next(self.database.runs, CLAIMER)
        assert claimed is not None
        return claimed

    def turn_start(self, claimed: ClaimedRun) -> TurnStart:
        heartbeat = Heartbeats(self.database.runs.renew, CLAIMER.lease_seconds).of(claimed.lease)
        return TurnStart(dependencies=self.dependencies, graph=GRAPH, claimed=claimed, heartbeat=heartbeat)

    async def turn(self, content: Content) -> Run:
        """Submit, claim and play one turn; return the run as it ended."""
        run = await self.submit(content)
        await take_turn(self.turn_start(await self.claim()))
        return await self.database.runs.get_run(self.owner_id, run.id)

    async def messages(self) -> tuple[Message, ...]:
        return await self.database.messages.get_messages_after(self.session.id, None)

    async def events(self, run: Run) -> Sequence[RunEvent]:
        return await self.database.events.read_events(run.id, 0)

    async def reload(self) -> Session:
        return await self.database.sessions.get(self.owner_id, self.session.id)


async def open_stage(
    database: Database,
    *,
    agent: AgentDefinition = AGENT,
    model: ScriptedModel | None = None,
    tools: Tools | None = None,
    config: TurnConfig | None = None,
) -> Stage:
    """Create user and session and put the parts together."""
    model = model or ScriptedModel()
    clock, metrics = ManualClock(), SilentMetrics()
    played_tools = tools or make_tool_box(timeout_seconds=HANG_SECONDS, max_result_bytes=100_000)
    dependencies = TurnDependencies(
        runs=database.runs,
        messages=database.messages,
        events=database.events,
        history=HistorySearch(database.history),
        memories=database.memories,
        models=ScriptedModels(model),
        tools=played_tools,
        tool_servers=PlayedServers(),
        agent_graphs=ImportedGraphs(played_tools.specs),
        agents=AgentRegistry([agent]),
        calibrations=CalibrationCache(database.calibrations, clock),
        summaries=database.summaries,
        breakers=Breakers(clock),
        usage=database.usage,
        hooks=OwnHooks(),
        metrics=metrics,
        clock=clock,
        make_counter=make_counter,
        config=config or TurnConfig(token_counter="chars"),
    )
    owner_id = await database.users.get_or_create("anna")
    session, _ = await database.sessions.create(
        NewSession(owner_id=owner_id, agent=agent.name, title="", source=Source.API, metadata={})
    )
    return Stage(database, model, clock, metrics, dependencies, owner_id, session)


def with_context(**changes: object) -> AgentDefinition:
    """Return the test agent with another context policy."""
    return replace(AGENT, context=replace(AGENT.context, **changes))  # type: ignore[arg-type]  # fields by name


CONFIG = ModelsConfig(idle_timeout_seconds=HANG_SECONDS, connect_timeout_seconds=HANG_SECONDS)


def agent_on(double: ProviderDouble, model: str, **context: object) -> AgentDefinition:
    """Return the test agent without tools on a model of the double; `context` changes its context policy."""
    changed = replace(AGENT.context, token_counter="tiktoken:cl100k_base", **context)  # type: ignore[arg-type]  # fields by name
    return replace(AGENT, model=model, base_url=double.url, tools=(), context=changed)


@asynccontextmanager
async def open_double_stage(
    database: Database, agent: AgentDefinition, *, tools: Tools | None = None
) -> AsyncIterator[Stage]:
    """Open a stage with real model clients; they are closed behind the block."""
    models = ModelRegistry(CONFIG)
    stage = await open_stage(database, agent=agent, tools=tools)
    stage.dependencies = replace(stage.dependencies, models=models)
    try:
        yield stage
    finally:
        await models.close()


def turn_requests(double: ProviderDouble) -> Sequence[RequestRecord]:
    """Return the requests for answers, in order."""
    return [record for record in double.requests if not record.is_summary]


def refusals(double: ProviderDouble) -> Sequence[tuple[int, str, str]]:
    """Return number, verdict and reason of each request that the double did not answer."""
    unanswered = [record for record in double.requests if record.verdict is not Verdict.ANSWERED]
    return [(record.number, record.verdict.value, record.refusal) for record in unanswered]


def written(number: int) -> DatedMessage:
    role = Role.USER if number % 2 == 0 else Role.ASSISTANT
    message = NewMessage(role=role, content=f"message {number} of a long talk", source=Source.API)
    tokens = count_message(message, lambda text: len(text) // 4)
    return DatedMessage(replace(message, token_count=tokens, counter="chars"))


async def import_into(stage: Stage, messages: int) -> None:
    """Import a conversation of so many messages; the stage's session is that one from then on."""
    new = Imported(stage.owner_id, stage.session.agent, "", Source.API, {})
    long_one = [written(number) for number in range(messages)]
    stage.session = await stage.database.sessions.import_conversation(new, long_one)
