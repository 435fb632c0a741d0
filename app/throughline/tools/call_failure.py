"""Results of failed tool calls, as the model reads them: with the reason, but nothing that may be confidential."""

import structlog

from throughline.domain.exception_causes import class_names, only_cause_of, traceback_lines
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.call_plugin import PluginTimedOut, ThreadLimitReached
from throughline.tools.result import result_text
from throughline.tools.tool import CallLimits, ToolFailed, failed

log = structlog.get_logger(__name__)


def failure_for_model(error: BaseException, name: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
    """Return the error result for the model: a ToolFailed's text, but only the class of an unexpected exception.

    Of an exception group, the exceptions in it count.

    `name` is the tool's. All but ToolFailed are logged; of an unexpected exception also where it was raised.
    """
    run_id = str(context.run_id)
    error = only_cause_of(error)
    if isinstance(error, ToolFailed):
        return failed(result_text(str(error), limits.max_result_bytes))
    if isinstance(error, ThreadLimitReached):
        log.warning("tool call skipped", tool=name, run_id=run_id, reason=str(error))
        return failed(f"{name} was not called: {error}. Try again later.")
    if isinstance(error, PluginTimedOut):
        log.warning("tool call timed out, outcome unknown", tool=name, run_id=run_id)
        return failed(
            f"{name} did not answer within {limits.timeout_seconds:g} seconds and was given up. "
            "Whether it took effect is unknown."
        )
    kind = class_names(error)
    log.warning("tool call failed", tool=name, run_id=run_id, error=kind, where=traceback_lines(error))
    return failed(f"{name} failed with {kind}.")
