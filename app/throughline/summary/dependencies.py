"""What writing a summary needs from outside, whether a turn asks for it, a job or a user."""

from dataclasses import dataclass, field

from throughline.domain.clock import Clock
from throughline.execution.call_plugin import PluginCall
from throughline.ports.hooks import Decision, Hooks
from throughline.prompting.ready_agent import PromptDependencies


@dataclass(frozen=True, slots=True)
class SummaryDependencies(PromptDependencies):
    """What preparing a prompt needs, and what stands around the models that write summaries."""

    hooks: Hooks
    clock: Clock
    hanging_hooks: dict[str, list[PluginCall[Decision]]] = field(default_factory=dict, kw_only=True)
