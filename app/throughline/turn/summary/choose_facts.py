"""The choice among kept facts: a model says which are the most important if there is no room for all."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from throughline.context.summaries.check_summary import SummaryRejected
from throughline.context.summaries.facts_choice_prompt import Choice, choice_of, counted
from throughline.context.summaries.summary_prompt import TextRequest
from throughline.domain.errors import ModelRejected, provider_words
from throughline.domain.summary import KeptFact
from throughline.turn.summary.summariser import Summariser
from throughline.turn.summary.summariser_calls import SUMMARISER_ERRORS, SummariserCalls

Facts = tuple[KeptFact, ...]
Asking = Callable[[Summariser, TextRequest], Awaitable[str]]
log = structlog.get_logger(__name__)


async def choose_facts(
    facts: Facts, room_tokens: int, summarisers: Sequence[Summariser], calls: SummariserCalls, asking: Asking
) -> Facts:
    """Return the facts with a model's choice counted, if they exceed `room_tokens` and enough of them are new.

    `asking` sends the request and returns the model's answer. If the last model tried rejects the request, or has no
    room for it, the facts no longer count as new. After any other failure nothing changes, and the choice is tried
    again later.
    """
    due = choice_of(facts, room_tokens, summarisers[0].count)
    if not due.listed:
        return facts
    try:
        return await calls.first_success(summarisers, partial(_choose, facts, room_tokens, due.answer_tokens, asking))
    except (ModelRejected, SummaryRejected) as error:
        log.info("choice among kept facts given up", error=error.code, **provider_words(error))
        return counted(facts, due, "")
    except SUMMARISER_ERRORS as error:
        log.info("choice among kept facts postponed", error=error.code, **provider_words(error))
        return facts


async def _choose(facts: Facts, room_tokens: int, answer_tokens: int, asking: Asking, summariser: Summariser) -> Facts:
    """Let one model choose; facts that its list had no room for are not judged."""
    list_tokens = summariser.request_tokens(answer_tokens) - summariser.prompt_tokens(Choice((), 0).request)
    choice = choice_of(facts, room_tokens, summariser.count, list_tokens)
    if not choice.listed:
        raise SummaryRejected("The summary model's window has no room for a list with enough new facts.")
    return counted(facts, choice, await asking(summariser, TextRequest(choice.request, choice.answer_tokens)))
