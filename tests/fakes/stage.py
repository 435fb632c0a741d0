"""A whole turn over the real database with a scripted model: what tests of the turn stand on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fakes.manual_clock import ManualClock
from fakes.own_hooks import OwnHooks
from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.silent_metrics import SilentMetrics
from fakes.tool_box import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.policy import ContextPolicy
from throughline.db.database import Database
from throughline.domain.basic_types import UserId
from throughline.domain.events import RunEvent
from throughline.domain.message import Content, Message, Source
from throughline.domain.run import ClaimedRun, Claimer, Run, RunInput, Submission
from throughline.domain.session import NewSession, Session
from throughline.execution.breaker import Breakers
from throughline.execution.lease_loop import Heartbeats
from throughline.llm.counters import make_counter
from throughline.ports.hooks import Tools
from throughline.turn.graph import build_graph
from throughline.turn.prompting.calibrate import CalibrationCache
from throughline.turn.prompting.ready_agent import calibration_key
from throughline.turn.state import TurnConfig, TurnDependencies
from throughline.turn.take_turn import TurnStart, take_turn

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
        claimed = await self.database.runs.claim_next(CLAIMER)
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
    dependencies = TurnDependencies(
        runs=database.runs,
        messages=database.messages,
        events=database.events,
        history=database.history,
        models=ScriptedModels(model),
        tools=tools or make_tool_box(timeout_seconds=HANG_SECONDS, max_result_bytes=100_000),
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
