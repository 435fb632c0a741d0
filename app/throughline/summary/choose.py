"""Having the summary model choose which kept facts matter most, where a summary has no room for all of them."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from throughline.context.summaries.choose_facts import (
    CHOICE_TOKENS,
    NEW_SHARE,
    choice_request,
    chosen_facts,
    listed_facts,
    most_facts,
)
from throughline.domain.kept_facts import KeptFact
from throughline.summary.summariser import Ask, Summariser, SummaryRejected
from throughline.summary.summariser_calls import SUMMARISER_ERRORS, SummariserCalls

Facts = tuple[KeptFact, ...]
Asking = Callable[[Summariser, Ask], Awaitable[str]]
log = structlog.get_logger(__name__)


async def choose_facts(
    facts: Facts, room_tokens: int, summarisers: Sequence[Summariser], calls: SummariserCalls, asking: Asking
) -> Facts:
    """Return the facts, those that the model did not choose set aside; as they are while all have room.

    It is asked once, of as many as its window has room for, and not again before there is as much that is new.
    `asking` returns its answer. Without a usable one kind and age decide.
    """
    most = most_facts(facts, room_tokens, summarisers[0].count)
    if most is None:
        return facts
    try:
        return await calls.first_success(summarisers, partial(_choose, facts, most, asking))
    except SUMMARISER_ERRORS as error:
        log.info("kept facts are chosen another time", error=error.code)
        return facts


async def _choose(facts: Facts, most: int, asking: Asking, summariser: Summariser) -> Facts:
    """Facts that are not on the list are not judged."""
    room = summariser.request_tokens(CHOICE_TOKENS) - summariser.prompt_tokens(choice_request((), most))
    listed, fewer = listed_facts(facts, most, room, summariser.count)
    if sum(fact.is_unjudged for fact in listed) < NEW_SHARE * most:
        raise SummaryRejected("The summary model's window has no room for a list with enough new facts.")
    answer = await asking(summariser, Ask(choice_request(listed, fewer), CHOICE_TOKENS))
    judged = dict(zip(listed, chosen_facts(listed, answer, fewer), strict=True))
    return tuple(judged.get(fact, fact) for fact in facts)
