"""Having the summary model choose which kept facts matter most, where a summary has no room for all of them."""

from collections.abc import Callable, Sequence
from functools import partial

import structlog

from throughline.context.summaries.choose_facts import CHOICE_TOKENS, choice_request, chosen_facts, most_facts
from throughline.domain.kept_facts import KeptFact
from throughline.summary.summariser import Ask, Summariser, Written
from throughline.summary.summariser_calls import SUMMARISER_ERRORS, SummariserCalls

log = structlog.get_logger(__name__)


async def choose_facts(
    facts: tuple[KeptFact, ...],
    room_tokens: int,
    count: Callable[[str], int],
    summarisers: Sequence[Summariser],
    calls: SummariserCalls,
) -> tuple[KeptFact, ...]:
    """Return the facts, those that the model did not choose set aside; as they are while all have room.

    It is asked once, if its window has room for the list, and not again before there is as much that is new. Without a
    usable answer kind and age decide.
    """
    most = most_facts(facts, room_tokens, count)
    if most is None:
        return facts
    prompt = choice_request(facts, most)
    able = [one for one in summarisers if one.prompt_tokens(prompt) <= one.request_tokens(CHOICE_TOKENS)]
    if not able:
        return facts
    ask = Ask(prompt, CHOICE_TOKENS)
    try:
        answer = await calls.first_success(able, partial(_ask, calls, ask))
    except SUMMARISER_ERRORS as error:
        log.info("kept facts are chosen another time", error=error.code)
        return facts
    calls.saved()
    return chosen_facts(facts, answer.text, most)


async def _ask(calls: SummariserCalls, ask: Ask, summariser: Summariser) -> Written:
    return await calls.ask(summariser, ask)
