"""New summary segments: the value to store, and the facts and hash that belong to it."""

from collections.abc import Sequence

from throughline.context.placeholder_texts import RECALL_TOOLS
from throughline.context.summaries.cited_facts import cited_facts
from throughline.context.summaries.parse_keep_lines import taken_facts
from throughline.context.summaries.summary_prompt import PROMPT_VERSION, request_hash
from throughline.domain.ids import UserId
from throughline.domain.message import Message
from throughline.domain.summary import KeptFact, NewSegment, WantedSegment
from throughline.summary.summariser import Ask, Summariser, Written


def instructions_of(summariser: Summariser) -> str:
    """Return the style and instructions for the text; they are part of the hash by which a segment is found again."""
    return "\n".join(part for part in (summariser.policy.style, summariser.instructions) if part)


def without_recall_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages from which facts are kept: all but results of recall tools, which repeat earlier messages."""
    return tuple(message for message in messages if message.name not in RECALL_TOOLS)


def facts_from_answer(written: Written, said: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts of the messages `said` that the model named below its text, and those that the text cites."""
    return (*taken_facts(written.keep_lines, said), *cited_facts(written.text, written.keep_lines, said))


def request_key(
    owner_id: UserId, summariser: Summariser, ask: Ask, read: Sequence[Message] = (), level: int = 0
) -> str:
    """Return the hash by which the owner's other sessions find the answer to `ask`.

    It covers the owner, the model, the request and its limits, and the messages `read` as stored.
    """
    numbers = (ask.max_tokens, ask.keep_tokens, level)
    return request_hash(str(owner_id), summariser.key, ask.prompt, numbers, read)


def new_segment(written: Written, wanted: WantedSegment, level: int = 0) -> NewSegment:
    """Return the segment to store, made from what was written for `wanted`."""
    return NewSegment(
        from_position=wanted.from_position,
        through_position=wanted.through_position,
        through_id=wanted.through_id,
        text=written.text,
        token_count=written.tokens,
        model=written.model,
        prompt_version=PROMPT_VERSION,
        read_hash=wanted.read_hash,
        request_hash=wanted.request_hash,
        duration_seconds=written.seconds,
        input_tokens=written.input_tokens,
        output_tokens=written.output_tokens,
        level=level,
    )
