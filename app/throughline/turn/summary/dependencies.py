"""Dependencies of writing a summary, shared by turns, side jobs and requests on demand."""

from dataclasses import dataclass, field

from throughline.domain.basic_types import Clock
from throughline.execution.call_plugin import PluginCall
from throughline.ports.hooks import Decision
from throughline.ports.storage import UsageStore
from throughline.ports.tracing import NO_TRACING, Tracing
from throughline.turn.prompting.ready_agent import PromptDependencies
from throughline.turn.summary.model_paces import ModelPaces


@dataclass(frozen=True, slots=True)
class SummaryDependencies(PromptDependencies):
    """Dependencies of preparing a prompt, and those of time limits, recorded calls and traces.

    `hanging_hooks` holds, by a hook's name, the calls that have not returned within their time; `paces` the measured
    speeds of summary models.
    """

    usage: UsageStore
    clock: Clock
    hanging_hooks: dict[str, list[PluginCall[Decision]]] = field(default_factory=dict, kw_only=True)
    paces: ModelPaces = field(default_factory=ModelPaces, kw_only=True)
    tracing: Tracing = field(default=NO_TRACING, kw_only=True)
