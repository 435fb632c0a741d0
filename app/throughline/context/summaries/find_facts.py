"""Facts found by rules in messages: the user's standing instructions, and what its form makes certain.

Such forms are errors, paths, addresses, identifiers, commands and settings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from throughline.context.summaries.fact_subjects import subject_key, words_of
from throughline.context.summaries.later_statements import SCANNED_CHARACTERS, later_statements
from throughline.context.summaries.parse_keep_lines import QUOTE_CHARACTERS
from throughline.context.summaries.readable_text import scanned
from throughline.context.summaries.sentences import one_line, sentences_of
from throughline.context.summaries.standing_instructions import is_standing_instruction
from throughline.context.summaries.strip_pasted import without_pasted_blocks, without_quotations
from throughline.context.summaries.structured_facts import structured_facts
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Message, Role, text_of

MOST_SUBJECTS = 12
"""Most subjects of known facts that a summary request names to the model."""


def facts_of(
    messages: Sequence[Message], named: Sequence[KeptFact], before: Sequence[KeptFact]
) -> tuple[KeptFact, ...]:
    """Return the facts kept from `messages`: those that a model `named`, those that rules find, and changes of either.

    `before` are the facts kept from earlier messages.
    """
    facts = (*named, *found_facts(messages))
    return (*facts, *later_statements((*before, *facts), messages))


def subjects_again(facts: Sequence[KeptFact], messages: Sequence[Message]) -> tuple[str, ...]:
    """Return subjects of kept facts whose words occur in the messages, the newest first, at most `MOST_SUBJECTS`."""
    words = {word for message in messages for word in words_of(text_of(message.content)[:SCANNED_CHARACTERS])}
    current = [fact for fact in reversed(facts) if fact.subject and not fact.replaced_by]
    again = dict.fromkeys(fact.subject for fact in current if subject_key(fact.subject) <= words)
    return tuple(islice(again, MOST_SUBJECTS))


def found_facts(messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts that rules find in `messages`, in position order. The time is linear in the text read."""
    ordered = sorted(messages, key=lambda message: message.position)
    return tuple(fact for message in ordered for fact in _of(message))


def _of(message: Message) -> Iterator[KeptFact]:
    author = message.author or ""
    if message.role is Role.USER:
        for sentence in dict.fromkeys(_instructions(scanned(text_of(message.content)))):
            yield KeptFact(FactKind.INSTRUCTION, sentence, message.position, author=author)
    for fact in structured_facts(message):
        is_tracked = fact.kind is FactKind.VALUE
        passed_over = 0 if message.role is Role.USER else 1
        yield replace(fact, author=author, subject=fact.subject if is_tracked else "", passed_over=passed_over)


def _instructions(text: str) -> Iterator[str]:
    """Yield the standing instructions among the user's own sentences; quoted text does not count."""
    visible = without_pasted_blocks(text)
    masked = without_quotations(visible)
    for start, stop in sentences_of(masked):
        if is_standing_instruction(masked[start:stop]):
            yield one_line(visible[start:stop], QUOTE_CHARACTERS)
