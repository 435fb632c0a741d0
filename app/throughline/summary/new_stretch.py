"""A stretch as it is to be stored, made of what a model wrote."""

from collections.abc import Sequence

from throughline.context.recall_hints import RECALL_TOOLS
from throughline.context.summaries.cited_facts import cited_facts
from throughline.context.summaries.keep_lines import taken_facts
from throughline.context.summaries.transcript import PROMPT_VERSION, request_hash
from throughline.domain.ids import UserId
from throughline.domain.kept_facts import KeptFact
from throughline.domain.message import Message
from throughline.domain.summary import NewStretch, WantedStretch
from throughline.summary.summariser import Ask, Summariser, Written


def wishes_of(summariser: Summariser) -> str:
    """What the operator and the user want of the text: another wish makes another stretch."""
    return "\n".join(part for part in (summariser.policy.style, summariser.instructions) if part)


def said_anew(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return what facts are kept of: what a recall tool returned was said before."""
    return tuple(message for message in messages if message.name not in RECALL_TOOLS)


def named_facts(written: Written, said: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts that the model named below its text, and those that the text cites, of the messages `said`."""
    return (*taken_facts(written.keep_lines, said), *cited_facts(written.text, written.keep_lines, said))


def hash_asked(owner_id: UserId, summariser: Summariser, ask: Ask, read: Sequence[Message] = (), level: int = 0) -> str:
    """Return the hash by which the owner's other sessions find what is answered; `read` are the messages as stored."""
    numbers = (ask.max_tokens, ask.keep_tokens, level)
    return request_hash(str(owner_id), summariser.key, ask.prompt, numbers, read)


def new_stretch(written: Written, wanted: WantedStretch, level: int = 0) -> NewStretch:
    """Return a stretch to be stored: what was written for `wanted`."""
    return NewStretch(
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
