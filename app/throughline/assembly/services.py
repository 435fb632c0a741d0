"""Dependencies of the REST routes, made from the parts of a process."""

from functools import partial

from throughline.api.http.services import Readiness, Services
from throughline.assembly.runtime import Runtime
from throughline.db.connection.migrations import head_revision
from throughline.prompting.agent_windows import agent_window
from throughline.slack.config import SlackHealth
from throughline.turn.submit import submit_message


def make_services(runtime: Runtime, *, has_worker: bool, slack: SlackHealth | None = None) -> Services:
    """Return the dependencies of the REST routes.

    `has_worker`: turns run in this process. `slack`: the state of its Slack interface, if it has one.
    """
    database, context = runtime.database, runtime.context
    slots = runtime.worker if has_worker else None
    return Services(
        database=database,
        memories=runtime.recall.memories,
        history=runtime.recall.history,
        agents=runtime.turn_dependencies.agents,
        submit=lambda submission: submit_message(submission, database.runs, slots),
        report_context=context.report_with_quotations,
        preview_context=context.preview,
        pin_message=context.pin,
        unpin_message=context.unpin,
        check_input=context.check_input,
        check_input_for=context.check_input_for,
        summarize_now=context.summarize,
        estimate_summary=context.estimate,
        render_metrics=runtime.metrics.render,
        check_ready=partial(_check_ready, runtime, slack, has_worker=has_worker),
        count_messages=context.count,
        agent_window=partial(agent_window, runtime.turn_dependencies),
        clock=runtime.turn_dependencies.clock,
    )


async def _check_ready(runtime: Runtime, slack: SlackHealth | None, *, has_worker: bool) -> Readiness:
    schema = await runtime.database.check_ready()
    checks = {"database": True}
    hints = {
        "schema": schema == head_revision(),  # a newer schema has all that this version needs
        "listener": runtime.database.notifier.is_listening,  # without it, waiting calls poll: slower
    }
    if has_worker:
        checks |= {"worker": runtime.worker.is_claiming, "jobs": runtime.worker.is_taking_jobs}
    else:
        hints["workers"] = await runtime.database.processes.count_claiming() > 0
    ready = Readiness(checks, hints)
    return ready if slack is None else _with_slack(ready, slack)


def _with_slack(ready: Readiness, slack: SlackHealth) -> Readiness:
    """Return the readiness with the state of Slack added.

    A process that serves only Slack is not ready while it cannot receive events.
    """
    heard, may_answer = {"slack": slack.disconnected is None}, {"slack_token": slack.token_refused is None}
    troubles = {"slack": slack.disconnected, "slack_token": slack.token_refused}
    checks, hints = (heard, may_answer) if slack.is_all else ({}, heard | may_answer)
    reasons = {name: str(trouble) for name, trouble in troubles.items() if trouble is not None}
    return Readiness({**ready.checks, **checks}, {**ready.hints, **hints}, reasons)
