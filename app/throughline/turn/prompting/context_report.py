"""Reports on a session's context: for GET …/context, POST …/context/preview, and the end of every turn."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from throughline.context.explain_context import (
    ContextReport,
    SummariserReport,
    SummaryFacts,
    SummaryFailure,
    explain_context,
    report_turn_end,
)
from throughline.context.preview import Preview, plan_next_call, preview_call
from throughline.context.quoted_history import Quotation
from throughline.context.view.view import View
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import TemporaryError
from throughline.domain.message import Content, Message, NewMessage, Role, Source, clean_content
from throughline.domain.recall import Memory
from throughline.domain.session import Session
from throughline.domain.summary import AdoptedSummary, Conversation, SummaryVersion
from throughline.turn.prompting.planning import at_rest, compute_context, count_new, make_context_input
from throughline.turn.prompting.ready_agent import (
    PromptDependencies,
    ReadyAgent,
    named_summary_model,
    read_health,
    with_calibration,
)
from throughline.wire.context import ContextOut

log = structlog.get_logger(__name__)


async def report_context(dependencies: PromptDependencies, session: Session) -> ContextReport:
    """Return the report on a session outside turns. Raises NotFound if its agent no longer exists."""
    agent, conversation = await at_rest(dependencies, session)
    context_input, facts = (
        make_context_input(agent, conversation, None),
        await _facts(dependencies, agent, conversation),
    )
    return await compute_context(context_input, lambda context_input: explain_context(context_input, facts))


Recaller: TypeAlias = Callable[[View], Awaitable[Sequence[Quotation]]]
"""Returns the messages that a view hides and that are worth quoting."""


async def preview_context(
    dependencies: PromptDependencies,
    session: Session,
    content: Content,
    recall: Recaller | None = None,
    memories: Sequence[Memory] = (),
) -> Preview:
    """Return the plan for the first model call of a turn that would begin with `content`; nothing is changed.

    `recall` finds the earlier messages to quote, and `memories` are the owner's to quote, as far as there is room.

    Raises NotFound if the session's agent no longer exists, PromptCannotFit if no prompt would fit.
    """
    agent, conversation = await at_rest(dependencies, session)
    message = NewMessage(role=Role.USER, content=clean_content(content), source=Source.API)
    context_input = make_context_input(agent, conversation, await count_new(message, agent.counter))
    planned = await compute_context(context_input, plan_next_call)
    quotations = () if recall is None else await recall(planned.view)
    return await compute_context(context_input, lambda _: preview_call(planned, quotations, memories))


@dataclass(frozen=True, slots=True)
class Closing:
    """The report at a turn's end, and whether the next summary should now be written in the background."""

    report: JsonObject
    is_summary_due: bool


async def close_context(
    dependencies: PromptDependencies, agent: ReadyAgent, conversation: Conversation, answer: NewMessage
) -> Closing:
    """Return the report as it will be once `answer` is stored; it is written together with the answer.

    It is counted as the next turn counts, with what this turn has taught about the model.
    """
    agent = await _calibrated_if_there(dependencies, agent)
    context_input = make_context_input(agent, conversation.with_own(_as_stored(conversation, answer)), None)
    facts = await _facts_if_there(dependencies, agent, conversation)
    report, is_due = await compute_context(context_input, lambda context_input: report_turn_end(context_input, facts))
    return Closing(ContextOut.render(report), is_summary_due=is_due)


async def _calibrated_if_there(dependencies: PromptDependencies, agent: ReadyAgent) -> ReadyAgent:
    """Return the agent as the next turn has it; if the database fails, as the turn has it."""
    try:
        return await with_calibration(dependencies, agent)
    except TemporaryError as error:
        log.warning("context report made with the turn's calibration", model=agent.model.name, error=error.code)
        return agent


async def _facts_if_there(
    dependencies: PromptDependencies, agent: ReadyAgent, conversation: Conversation
) -> SummaryFacts:
    """Return the facts about summaries; if the database fails, those that are known without it.

    A finished answer must not be lost because its report is incomplete.
    """
    try:
        return await _facts(dependencies, agent, conversation)
    except TemporaryError as error:
        session = conversation.session
        log.warning("context report made without summary facts", session_id=str(session.id), error=error.code)
        return replace(_facts_at_hand(dependencies, agent, session), summary_count=session.summary_version)


async def _facts(dependencies: PromptDependencies, agent: ReadyAgent, conversation: Conversation) -> SummaryFacts:
    """Return the facts about the session's summaries.

    It queries the database only if a summary was adopted after the conversation was loaded.
    """
    session, adopted = conversation.session, conversation.adopted
    facts = _facts_at_hand(dependencies, agent, session)
    if session.summary_version == 0:
        return facts
    if adopted is None or adopted.version != session.summary_version:
        adopted = _as_adopted(await dependencies.summaries.latest(session.id))
    return replace(facts, summary_count=session.summary_version, adopted=adopted)


def _facts_at_hand(dependencies: PromptDependencies, agent: ReadyAgent, session: Session) -> SummaryFacts:
    summariser = named_summary_model(dependencies.models, agent) or agent.model
    found = read_health(dependencies.breakers, summariser.calibration_key, str(session.id))
    report = SummariserReport(summariser.name, found.state.value, math.ceil(found.retry_after_seconds))
    at = session.summary_failed_at
    failure = None if at is None else SummaryFailure(session.summary_failure, at)
    return SummaryFacts(agent=agent.definition.name, model=agent.model.name, summariser=report, failure=failure)


def _as_adopted(version: SummaryVersion | None) -> AdoptedSummary | None:
    if version is None or version.version is None:
        return None
    return AdoptedSummary(
        version=version.version,
        token_count=version.token_count,
        through_id=version.through_id,
        through_position=version.through_position,
        model=version.model,
        created_at=version.created_at,
    )


def _as_stored(conversation: Conversation, answer: NewMessage) -> Message:
    """Return the answer as a message at its future position; its id and time do not matter to a report."""
    last = conversation.own[-1]
    return replace(
        last,
        position=last.position + 1,
        role=answer.role,
        content=answer.content,
        tool_calls=(),
        tool_call_id=None,
        name=None,
        token_count=answer.token_count,
        counter=answer.counter,
    )
