"""The agent's hook `pre_compact`: asked before a summary is written or adopted, within a time limit of its own."""

import asyncio
from dataclasses import replace
from functools import partial

import structlog

from throughline.domain.errors import SettingInvalid
from throughline.domain.message import clean_text
from throughline.execution.call_plugin import PluginCall
from throughline.execution.error_boundary import Raised
from throughline.ports.hooks import Decision, PreCompact
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.dependencies import SummaryDependencies

CANCELLED_BY_HOOK = "The agent's pre_compact hook cancelled it."
HOOK_SECONDS = 5.0
SHARE_OF_LIMIT = 0.5
"""Share of a compaction's time limit that a hook may use; the summary itself needs the rest."""

GO_ON = Decision()
log = structlog.get_logger(__name__)


async def ask_hook(dependencies: SummaryDependencies, compaction: Compaction, event: PreCompact) -> Decision:
    """Return the decision of the agent's hook; it cannot cancel if the prompt would not fit otherwise.

    To go on, if there is no hook, or it gives no decision within its share of the compaction's time and HOOK_SECONDS.
    After several failures in a row the hook is not called until a cool-down is over. While earlier calls of it still
    hang, it is not called either.
    """
    name = compaction.agent.definition.context.pre_compact
    key = f"pre_compact:{name}"
    if not name or _is_hanging(dependencies, name) or not dependencies.breakers.acquire(key):
        return GO_ON
    seconds = min(HOOK_SECONDS, SHARE_OF_LIMIT * compaction.limit_seconds)
    try:
        decision = await _ask_in_time(dependencies, name, event, seconds)
    except asyncio.CancelledError:
        dependencies.breakers.released(key)
        raise
    except (_HookFailedError, SettingInvalid) as error:
        dependencies.breakers.failed(key)
        kind = str(error) if isinstance(error, _HookFailedError) else "SettingInvalid"
        log.warning("pre_compact hook failed", hook=name, error=kind)
        return GO_ON
    dependencies.breakers.succeeded(key)
    return replace(decision, cancel=decision.cancel and not event.must_compact)


class _HookFailedError(Exception):
    """Raised if the hook gave no valid decision.

    The text names the class of the hook's error or says what is wrong with its answer. It never has the hook's own
    message.
    """


def _is_hanging(dependencies: SummaryDependencies, name: str) -> bool:
    dependencies.hanging_hooks[name] = [call for call in dependencies.hanging_hooks.get(name, ()) if call.is_hanging]
    if not dependencies.hanging_hooks[name]:
        return False
    log.warning("pre_compact hook skipped", hook=name)
    return True


async def _ask_in_time(dependencies: SummaryDependencies, name: str, event: PreCompact, seconds: float) -> Decision:
    call = PluginCall(partial(dependencies.hooks.get(name), event), _check_decision)
    try:
        outcome = await call.outcome(seconds)
    finally:
        if call.is_hanging:
            dependencies.hanging_hooks[name].append(call)
    if isinstance(outcome, Raised):
        is_answer = isinstance(outcome.error, _HookFailedError)
        raise _HookFailedError(str(outcome.error) if is_answer else type(outcome.error).__name__)
    return outcome.value


def _check_decision(answer: object) -> Decision:
    """Return the decision with cleaned texts; None means to go on. The types of all fields are checked."""
    if answer is None:
        return GO_ON
    if not isinstance(answer, Decision):
        raise _HookFailedError(f"answered {type(answer).__name__}")
    cancel, instructions, summary = _answered_fields(answer)
    if not isinstance(cancel, bool):
        raise _HookFailedError("answered a Decision whose cancel is no bool")
    if not isinstance(instructions, str) or not isinstance(summary, str):
        raise _HookFailedError("answered a Decision whose texts are none")
    return Decision(cancel, clean_text(instructions), clean_text(summary))


def _answered_fields(answer: Decision) -> tuple[object, object, object]:
    return answer.cancel, answer.instructions, answer.summary
