"""Summary of messages that belong to no session, read in parts that fit the model's window. Nothing is stored.

The Python client uses it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from throughline.context.summaries.check_summary import Sources
from throughline.context.summaries.summary_prompt import SMALLEST_BUDGET, chunk_for_summariser, render_transcript
from throughline.domain.errors import InvalidInput, ModelUnavailable
from throughline.domain.message import Message
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.turn.summary.summariser import Summariser, SummaryRejected, check_answer, summarize_messages
from throughline.turn.summary.summariser_calls import pause_seconds

Chunk = tuple[Message, ...]


async def summarize_transcript(messages: Sequence[Message], existing_summary: str, summariser: Summariser) -> str:
    """Return one checked text for `existing_summary` and `messages` together.

    The messages are read in parts; each call extends the text of the call before. A failed or unusable answer is
    requested once more. Raises InvalidInput if the summary model's window has no room for messages, SummaryRejected,
    NotWorthIt, and the ModelRejected and ModelUnavailable families.
    """
    text, count = existing_summary, summariser.count
    replaced = await run_off_loop_if_large(len(text), partial(count, text))
    room = _room(max(replaced, summariser.max_tokens), summariser)
    cut = partial(chunk_for_summariser, tuple(messages), budget_tokens=room, count=count)
    for chunk in await run_off_loop_if_large(characters_of(messages), cut):
        record = render_transcript(chunk)
        replaced += await run_off_loop_if_large(len(record), partial(count, record))
        text = await _ask_twice(chunk, Sources(record, text, (1, chunk[-1].position)), replaced, summariser)
    return text


def _room(kept_tokens: int, summariser: Summariser) -> int:
    """Return the tokens of a request that remain besides the summary it carries and the instructions."""
    most = summariser.request_tokens(summariser.max_tokens)
    room = most - kept_tokens - summariser.count(summariser.instructions) - SMALLEST_BUDGET
    if room < max(most // 4, SMALLEST_BUDGET):
        raise InvalidInput(
            f"The existing summary and the instructions take {most - max(room, 0)} of the {most} tokens that a request "
            f"to {summariser.model.name} may have: shorten them, or name a model with a larger window.",
            field="existing_summary",
        )
    return room


async def _ask_twice(chunk: Chunk, sources: Sources, replaced_tokens: int, summariser: Summariser) -> str:
    try:
        return await _ask(chunk, sources, replaced_tokens, summariser)
    except SummaryRejected:
        pass
    except ModelUnavailable as error:
        await asyncio.sleep(pause_seconds(error))
    return await _ask(chunk, sources, replaced_tokens, summariser)


async def _ask(chunk: Chunk, sources: Sources, replaced_tokens: int, summariser: Summariser) -> str:
    """Return the checked answer.

    `replaced_tokens` is the size of everything read so far, all of which the text replaces.
    """
    answer = await summarize_messages(chunk, sources.existing, summariser)
    checked = await check_answer(
        answer, summariser, replaced_tokens=replaced_tokens, max_tokens=summariser.max_tokens, sources=sources
    )
    return checked.text
