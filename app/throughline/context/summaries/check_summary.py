"""Checks of a summary model's answer before it is stored."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice

from throughline.context.find_citations import LOOSE_BRACKET, LOOSE_PLACE, MARKED_NUMBER, POSITION_DIGITS
from throughline.context.measure import Count
from throughline.context.summaries import summary_prompt
from throughline.context.summaries.clean_summary import clean_summary, count_marks, without_loops
from throughline.context.summaries.judge_by_sources import (
    IN_A_LOOP,
    NUMBER,
    ONLY_QUESTIONS,
    READ_CHARACTERS,
    REPORTED,
    has_loop,
    is_loop,
    is_question,
    why_unlike_sources,
    why_unlike_users,
    words_of_sources,
)
from throughline.context.summaries.readable_text import one_of
from throughline.context.summaries.render_summary import (
    CUT_MARK,
    PARAGRAPH,
    cut_at_boundary,
    cut_middle_at_boundaries,
    with_one_mark,
)
from throughline.context.summaries.summary_prompt import TextRequest
from throughline.domain.errors import PermanentError
from throughline.domain.message import is_blank
from throughline.domain.reasoning import without_thinking

# Detection of texts that are no summary: refusals, error texts, echoes of the request, bare headings.
#
# `check_summary` calls it for the summary model's answers. Refusals and errors are recognised by their first words.

SHORT_TEXT_CHARACTERS = 400
"""Length up to which a text is taken for an error message because of its first words.

A longer text is a summary of an error, unless a program wrote it.
"""

REFUSAL_CHARACTERS = 1500
"""Length up to which a text may be a refusal: refusals are longer than errors, but have no sections or citations."""

MOST_LABELS = 8
"""Number of headings and labels that are skipped before the first word."""

ECHO_CHARACTERS = 60
"""Length of the summary prompt's beginning that a text must start with to count as an echo of it."""

_ECHOES = (
    summary_prompt.SUMMARISER_SYSTEM_PROMPT[:ECHO_CHARACTERS],
    *("The record to add:", "The record:", "The existing summary:", "The existing summaries of"),
    *(
        f"<{summary_prompt.CONVERSATION_TAG}",
        f"<{summary_prompt.EXISTING_TAG}",
        f"{summary_prompt.CLOSING_WORDS}, in at most",
    ),
)
_PLAIN_REFUSALS = one_of("""i'm sorry, i'm *ly sorry, i'm so sorry, sorry i, sorry but, sorry this, sorry.,
    apologies but, my apologies, i apologi*, as an ai, as a language model, as a large language model, i must decline,
    i can't help, i can't assist, i can't summari*, i can't provide, i can't do, i can't process, i can't create,
    i can't discuss, i can't fulfil*, i can't comply, i'm unable to, i'm not able to help, i'm not able to summari*""")
"""Refusals that count even below a heading, where a user's own words may also say that something is impossible."""

_REFUSALS = one_of("""i can't, i won't, i will not, i couldn't, i'm not able, unfortunately i, es tut mir leid,
    ich kann … nicht, leider kann ich, das kann ich … nicht, dabei kann ich … nicht, je suis désolé*, désolé*,
    je ne peux pas, lo siento, no puedo, mi dispiace, non posso, desculpe, não posso, извините, к сожалению я,
    я не могу, 很抱歉, 抱歉, 对不起, 我无法, 我不能, 申し訳, すみません""")
_NOT_DONE = one_of("""…request can't be, …conversation can't be, …blocked by content, …content filter, …content policy,
    please provide the conversation, please provide the text, please share the conversation,
    could you provide the conversation, …nothing to summari*, …no … to summari*""")
_ROLES = one_of("you're a* … assistant")
_ORDERS = one_of("ignore … instructions, disregard … instructions, system prompt:")
_MACHINE = one_of("""traceback (most, doctype, html>, xml version, error": {, error":, detail":, type": "error,
    type":"error, error: 4*, error: 5*, error code: 4*, error code: 5*, *.*error:, *.*exception:""")
"""Beginnings that only programs write, whatever the length of the text."""

_ERRORS = one_of("""*error:, *exception:, error code, http 4*, http 5*, internal server error, bad gateway, overloaded,
    gateway timeout, service unavailable, too many requests, quota exceeded, rate limit exceeded, insufficient quota,
    you exceeded your, your credit balance, invalid api key, incorrect api key, model not found, access denied,
    the model … does not exist, request timed out, connection refused:, connection error, authentication failed""")
_ERROR_WORD = one_of("*error, *exception, failed, failure, denied, refused, unavailable, forbidden, timed out, timeout")
_ABOUT_A_USER = one_of("user, user's, users")
"""Words that mark a summary: an error text does not mention a user, a summary about an error mostly does."""

_CITED = re.compile(r"\[#[^\[\]\n]{0,120}\]")
_RECORD_TAG = re.compile(r"\[#\d+ (?:user|assistant|tool|calls)[^\[\]\n]*+\]\s*+")
_STRUCTURE = re.compile(r"\[#\d|^#{1,4} |^[^\S\n]*+[-*] ", re.MULTILINE)
_LABEL = re.compile(r"(?i)\A\s*+(?:#[^\n]*+(?:\n|\Z)|\*\*[^*\n]{1,60}+\*\*:?|[^\n:.]{0,40}summary[^\n:.]{0,60}[:：])")
_NOTHING = r"none|n/?a|null|nothing|ok|okay|done|yes|no|markdown|summary|rate limit"
_NO_CONTENT = re.compile(rf"(?i)\s*+(?:#(?!\d).*|\*\*[^*]*+\*\*:?|.{{0,80}}[:：]|[\W\d_]*+(?:{_NOTHING})?[\W_]*+)")
_OPENING = re.compile(r"\A\s*+(?:```\w*\s*)?")
_PIECE_END = re.compile(r"(?<=[.!?。！？])\s++|\n")


def why_no_summary(text: str, record: str = "", numbers: Collection[str] = ()) -> str:
    """Return why `text` cannot serve as a summary, '' if it can.

    `record` is the transcript that the model read. The `numbers` of what it read, if given, are content by themselves.
    """
    if is_blank(text):
        return "The summary model returned an empty text."
    if _OPENING.sub("", text).startswith(_ECHOES):
        return "The summary model repeated what it was told."
    has_number = bool(numbers) and not set(numbers).isdisjoint(NUMBER.findall(_CITED.sub("", text)))
    if not has_number and all(_NO_CONTENT.fullmatch(line) for line in text.splitlines()):
        return "The summary model returned headings and no summary."
    whole = _RECORD_TAG.sub("", _once(text))
    said = _unlabelled(whole)
    if _is_order(_plain(said), is_cited="[#" in text):
        return "The summary model returned instructions and no summary."
    if _is_refusal(said, whole) or _is_error(said, record):
        return "The summary model returned a refusal or an error text."
    return ""


def _once(text: str) -> str:
    """Return `text` without repeated lines and sentences: an error repeated fifty times counts as a short one."""
    pieces = [piece.strip() for piece in _PIECE_END.split(text)]
    unique = dict.fromkeys(piece for piece in pieces if piece)
    return text if len(unique) == len(pieces) else "\n".join(unique)


def _unlabelled(text: str) -> str:
    """Return `text` without the headings and labels at its beginning."""
    for _ in range(MOST_LABELS):
        text = _LABEL.sub("", text)
    return text


def _plain(text: str) -> str:
    """Return the beginning of a text as the lists spell it: lower case, contracted forms, from its first letter on."""
    plain = " ".join(text[:SHORT_TEXT_CHARACTERS].lower().replace("’", "'").replace(",", "").split())
    for long, short in (("cannot", "can't"), ("can not", "can't"), ("i am ", "i'm "), ("you are ", "you're ")):
        plain = plain.replace(long, short)
    return plain.lstrip("0123456789 #*_>-`'\"{}[]()<?!/.:")


def _is_order(plain: str, *, is_cited: bool) -> bool:
    """Return whether a text begins with an order to a model. A text with citations may report one that was given."""
    if _ROLES.match(plain):
        return not is_cited
    return bool(_ORDERS.match(plain)) and not (is_cited and REPORTED.search(plain))


def _is_refusal(said: str, whole: str) -> bool:
    """Return whether an answer refuses. `said` is `whole` without labels at its beginning, such as "Summary:"."""
    plain = _plain(said)
    is_refusal = bool(_PLAIN_REFUSALS.match(plain) or (said == whole and _REFUSALS.match(plain)))
    if len(said) <= SHORT_TEXT_CHARACTERS and "[#" not in said:
        return is_refusal or bool(_NOT_DONE.match(plain) and not _ABOUT_A_USER.search(plain))
    return len(said) <= REFUSAL_CHARACTERS and is_refusal and not _STRUCTURE.search(whole)


def _is_error(text: str, record: str) -> bool:
    """Return whether the text is an error text, even if the record contains it; a text that cites positions is not."""
    plain = _plain(text)
    if "[#" in text or _ABOUT_A_USER.search(text.lower()):
        return False
    if len(text) > SHORT_TEXT_CHARACTERS or _STRUCTURE.search(text):
        return bool(_MACHINE.match(plain)) and not _STRUCTURE.search(text)
    is_known = bool(_MACHINE.match(plain) or _ERRORS.match(plain))
    return is_known or (bool(_ERROR_WORD.search(plain)) and " ".join(text.split()) in " ".join(record.split()))


GRAM_WORDS = 8
"""Number of consecutive words that are hardly ever the same by chance."""

LONG_RUN_CHARACTERS = 400
"""Length from which copied text is more than a quotation.

The offline model's extracts are sentences of at most 300 characters, one per line.
"""

COPIED_PERCENT = 60
"""Share of copied characters from which a text counts as a copy with a few words around it."""

LARGE_SHARE_PERCENT = 50
"""A list of quotations may be entirely verbatim if it contains less than this share of the record."""

SUBSTANCE_CHARACTERS = 100
"""Length of all new words together below which a record may leave a summary unchanged: thanks, greetings, filler."""

_TAG = re.compile(r"^\[#\d+ (?:user|assistant|tool|calls)\b[^\[\]\n]*+\]", re.MULTILINE)
_SPEAKER = re.compile(
    r"^[*_]{0,2}(?:user|human|assistant|ai|tool)[*_]{0,2}:[*_]{0,2}(?=\s)", re.MULTILINE | re.IGNORECASE
)
_QUOTED_LINE = re.compile(r"\A(?:[-*•>]|#{1,6}|\d+[.)])\s")
_SECTION = re.compile(r"^#{1,4} \w", re.MULTILINE)
_WORD = re.compile(r"\w+")


def is_copy(text: str, record: str) -> bool:
    """Return whether `text` is the transcript `record`, or a part of it, instead of a summary.

    Copied are long sequences that stand word for word in the record. A mostly copied text is a copy if it has the
    record's own tags, if it is neither a list nor sections with positions, or if it holds half of the record. Quoted
    single sentences do not count. The time is linear in both texts.
    """
    if len(text) < LONG_RUN_CHARACTERS or not _TAG.search(record):
        return False
    words, read = _words(text), _words(record)
    copied = sum(run for run in _runs(words, read) if run >= LONG_RUN_CHARACTERS)
    if copied * 100 < COPIED_PERCENT * _length(words):
        return False
    return bool(_TAG.search(text)) or not _is_structured(text) or copied * 100 >= LARGE_SHARE_PERCENT * _length(read)


def is_unchanged(text: str, existing: str, record: str) -> bool:
    """Return whether `text` is the `existing` summary again, or its beginning, although `record` says something new.

    A model that repeats the summary before it writes what is new may reach the limit of its answer in between.
    """
    words = text.removesuffix(CUT_MARK).split()
    if not words or words != existing.split()[: len(words)]:
        return False
    new = {*_WORD.findall(_TAG.sub("", record).casefold())} - {*_WORD.findall(existing.casefold())}
    return sum(map(len, new)) >= SUBSTANCE_CHARACTERS


def _words(text: str) -> list[str]:
    """Return the words without the tags and names of the speakers."""
    return _SPEAKER.sub("", _TAG.sub("", text)).split()


def _length(words: Sequence[str]) -> int:
    return sum(map(len, words)) + len(words)


def _runs(words: Sequence[str], read: Sequence[str]) -> Iterator[int]:
    """Yield the characters of each copied run of `words`: every eight consecutive words also stand in `read`."""
    known = {hash(gram) for gram in _grams(read)}
    run = covered = 0
    for start, gram in enumerate(_grams(words)):
        if hash(gram) in known:
            run += _length(words[max(start, covered) : start + GRAM_WORDS])
            covered = start + GRAM_WORDS
        elif run:
            yield run
            run = 0
    yield run


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(islice(words, offset, None) for offset in range(GRAM_WORDS)), strict=False)


def _is_structured(text: str) -> bool:
    """Return whether most lines are quotations, or the text has the requested sections with cited positions."""
    return _is_list(text) or (_SECTION.search(text) is not None and "[#" in text)


def _is_list(text: str) -> bool:
    lines = [line.lstrip() for line in text.splitlines() if line.strip()]
    return 2 * sum(1 for line in lines if _QUOTED_LINE.match(line)) > len(lines)


def without_invented(text: str, reach: tuple[int, int], *read: str) -> str:
    """Return `text` without citations of positions outside `reach` (first and last, inclusive) or in reverse order.

    Nothing else is changed: a summary without citations is still useful, and models that count from 1 in each part
    write good ones. Numbers after `#` that occur in the texts `read` (such as ticket numbers), links, code and parts of
    words stay.
    """
    known = {int(number) for source in read for number in MARKED_NUMBER.findall(source)}
    return LOOSE_BRACKET.sub(partial(_real_part, reach, known), text)


def _real_part(reach: tuple[int, int], known: Collection[int], citation: re.Match[str]) -> str:
    found = list(LOOSE_PLACE.finditer(citation["places"]))
    real = [place.group().strip() for place in found if _is_real(place, reach) or _is_known(place, known)]
    if len(real) == len(found):
        return citation.group()
    return f"{citation['before']}[{', '.join(real)}]" if real else ""


def _is_known(place: re.Match[str], known: Collection[int]) -> bool:
    numbers = [number for number in place.groups() if number]
    return all(len(number) <= POSITION_DIGITS and int(number) in known for number in numbers)


def _is_real(place: re.Match[str], reach: tuple[int, int]) -> bool:
    first, last = place[1], place[2] or place[1]
    if max(len(first), len(last)) > POSITION_DIGITS:
        return False
    return reach[0] <= int(first) <= int(last) <= reach[1]


SMALL_SUMMARY_TOKENS = 200
"""A summary with fewer tokens is always accepted as small enough."""

MOST_CHARACTERS_PER_TOKEN = 64
"""Characters per allowed token beyond which a text is not read: it will be cut anyway, and reading it takes seconds."""


MOST_MARKED_LINES = 1
"""Lines that may begin with a tag of the record, even if they are half of a summary."""

_LIMIT = re.compile(rf"{summary_prompt.CLOSING_WORDS}, in at most (\d+ words)")
_GUIDANCE = tuple(paragraph.removesuffix("…") for paragraph in summary_prompt.guidance_of("…", "…"))
PROMPT_TAGS = (summary_prompt.CONVERSATION_TAG, summary_prompt.EXISTING_TAG)
_ARGUMENTS = r"\"(?:arguments|parameters|args|input|action_input|tool_input)\"\s*+:"
_TOOL_CALL = re.compile(
    r"\A\s*+(?:```\w*+\s*+)?(?:<\W{0,2}(?:tool|function|invoke)s?\b|<\W{0,2}tool_call|\[/?(?:tool_call|available_tools)"
    r"|(?:[*_]{0,2}(?:thought|question):[^\n]*+\n\s*+){0,2}[*_]{0,2}action:[^\n]*+\n\s*+[*_]{0,2}action input:"
    r"|\[?\s*+\{\s*+\"(?:tool_calls|function_call)\"\s*+:|\[?\s*+\{\s*+\"type\"\s*+:\s*+\"(?:function|tool_use)\""
    rf"|\[?\s*+\{{\s*+\"(?:name|tool|function|action)\"\s*+:\s*+\"[^\"\n]*+\"\s*+,\s*+{_ARGUMENTS})",
    re.IGNORECASE,
)
"""Beginnings of a tool call, in the forms of models and servers: tags, marks, `Action:` and JSON with arguments."""

_JSON_OF_A_CALL = re.compile(
    r"\A\s*+(?:```\w*+\s*+)?\[?\s*+\{\s*+\"(?:name|tool|function|action|role)\"\s*+:", re.IGNORECASE
)
"""Beginnings of JSON that is a call or a message, unless JSON was asked for."""

_IN_QUOTES = r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'"
_INNER = rf"(?:[^()\"']++|{_IN_QUOTES})"
_CALL = re.compile(
    rf"\A(?:(?:await\s++)?[a-z_]\w*+(?:\.\w++)*+\((?=\s*+(?:[\[{{\"']|\w++\s*+[=(.]))"
    rf"(?:{_INNER}|\((?:{_INNER}|\({_INNER}*+\))*+\))*+\)[\s;,]*+)++",
    re.IGNORECASE,
)
"""Calls in a programming language: a name with arguments in brackets, one behind another."""

_FENCE = re.compile(r"\A```\w*+|```\Z")
_JSON_ASKED = re.compile(r"\b(?:json|yaml)\b", re.IGNORECASE)
_SPOKEN_ASKED = re.compile(
    r"dialog|diálogo|对话|対話|диалог|interview|screenplay|\bq ?& ?a\b|questions? and answers?|fragen? und antwort"
    r"|\b(?:as|like|into|form of|format of|write|als|como|comme) (?:an? |the |eine[mn]? |una? |une )?(?:\w+ )?"
    r"(?:conversation|chat|script|letter|e-?mail|mail|gespräch|conversación|carta|lettre)\b|\b(?:als|einen) brief\b",
    re.IGNORECASE,
)
"""Requests for a text in which somebody speaks: a dialogue or a letter."""


class NotWorthIt(PermanentError):
    """Exception for a summary that is no smaller than what it would replace. It does not count as a failure."""

    code = "summary_not_worth_it"


class SummaryRejected(PermanentError):
    """Exception for an answer that cannot serve as a summary, and for instructions that no model has room for."""

    code = "summary_rejected"


def check_summary(text: str, asked: TextRequest, count: Count, *, is_extract: bool = False) -> tuple[str, int]:
    """Return the text to store, which was written for the request `asked`, and its tokens.

    - Removed are the model's preceding reasoning, citations of positions that it never read, and what it wrote around
      the summary: prefaces, questions to the reader, a continued dialogue, repetitions.
    - A text above the limit is cut at a boundary and marked: at its end, or in its middle if it extends an existing
      summary. Its size is judged before.

    `is_extract`: rules made the text from sentences of its sources, so that it is not compared with them.

    Raises SummaryRejected for a text that is no summary (a refusal, an error text), a copy of the record, the existing
    summary again or its beginning, and a text that does not match its sources. Raises NotWorthIt for a summary that is
    no smaller than what it would replace, unless it has fewer than SMALL_SUMMARY_TOKENS. The time is linear in the
    sources and in the limit.
    """
    record, existing = asked.sources
    max_tokens, replaced_tokens = asked.max_tokens, asked.replaced_tokens
    most = max(max_tokens, SMALL_SUMMARY_TOKENS) * MOST_CHARACTERS_PER_TOKEN
    text = with_one_mark(without_thinking(text))
    head = text[:most]
    said = without_invented(head, asked.reach, record, existing) if asked.reach else head
    if reason := _why_not(said, record, "" if asked.may_be_unchanged else existing, _numbers_for(asked)):
        raise SummaryRejected(reason)
    if not is_extract:
        said = _cleaned(said, asked)
    whole = count(said) if len(head) == len(text) else count(head) * len(text) // len(head)
    if whole >= replaced_tokens and whole >= SMALL_SUMMARY_TOKENS:
        raise NotWorthIt(f"The summary takes {whole} tokens and would replace only {replaced_tokens}.")
    cutting = cut_middle_at_boundaries if existing else cut_at_boundary
    cut = cutting(said, max_tokens, count).strip()
    if is_blank(cut):
        raise SummaryRejected(f"Nothing of the summary fits {max_tokens} tokens.")
    return cut, count(cut)


def _why_not(text: str, record: str, existing: str, numbers: Collection[str]) -> str:
    reason = why_no_summary(text, record, numbers)
    if not reason and is_copy(text, record):
        return "The summary model returned the record and no summary."
    if not reason and is_unchanged(text, existing, record):
        return "The summary model returned the existing summary without what is new."
    return reason


def _cleaned(written: str, asked: TextRequest) -> str:
    """Return the text without what surrounds the summary. Raises SummaryRejected if no summary of the sources remains.

    Short sources are too little to judge by; of long ones a summary needs words. Where no record
    is known, or it is a loop by itself, such as a line printed again and again, a text may be one, too.
    """
    record, existing = asked.sources
    guidance = "\n".join(_guidance_in(asked))
    may_be_spoken = _SPOKEN_ASKED.search(guidance) is not None
    limit = next(iter(_LIMIT.findall(asked.text)[-1:]), "")
    said = clean_summary(written, record + existing, guidance, limit=limit, may_be_spoken=may_be_spoken)
    reason = _why_not_cleaned(said, written, record + existing) or _why_called(said, written, guidance)
    if reason := reason or why_no_summary(said, record, _numbers_for(asked)):
        raise SummaryRejected(reason)
    sources = words_of_sources(record, existing)
    if not sources and (not record or is_loop(record + existing)):
        return said
    said = without_loops(said).strip()
    if reason := _why_unlike(said, sources, asked, has_guidance=bool(guidance)):
        raise SummaryRejected(reason)
    return said


def _why_unlike(said: str, sources: set[str], asked: TextRequest, *, has_guidance: bool) -> str:
    """Return why the text `said`, without repetitions, is no summary of its sources, '' if it is one."""
    record, existing = asked.sources
    if is_blank(said) or has_loop(said):
        return IN_A_LOOP
    if not has_guidance and is_question(said):
        return ONLY_QUESTIONS
    if sources and (reason := why_unlike_sources(said, sources, record, has_guidance=has_guidance)):
        return reason
    return "" if has_guidance else why_unlike_users(said, record, existing)


def _numbers_for(asked: TextRequest) -> Collection[str]:
    """Return the numbers in the sources of a request with guidance, which may ask for nothing else; () without it."""
    return frozenset(NUMBER.findall("".join(asked.sources)[:READ_CHARACTERS])) if _guidance_in(asked) else ()


def _why_not_cleaned(said: str, written: str, sources: str) -> str:
    """Return why the cleaned text `said` cannot serve, '' if it can; `written` is the model's own text."""
    marked, lines = count_marks(written, sources)
    if marked > MOST_MARKED_LINES and 2 * marked >= lines:
        return "The summary model repeated the lines of the record."
    if not said:
        return "The summary model repeated its task, or wrote to a reader or to itself, and wrote no summary."
    if any(f"<{tag}" in said or f"</{tag}" in said for tag in PROMPT_TAGS if tag not in sources):
        return "The summary model repeated the tags of its request."
    return ""


def _why_called(said: str, written: str, guidance: str) -> str:
    """Return why the text `said`, cleaned from `written`, is a call; '' for any other text, and for JSON asked for."""
    bare = _FENCE.sub("", said).strip("[] \n")
    is_call = bool(_TOOL_CALL.match(said) or _TOOL_CALL.match(written) or _CALL.fullmatch(bare))
    is_json = bool(_JSON_OF_A_CALL.match(said)) and not _JSON_ASKED.search(guidance)
    return "The summary model called a tool and wrote no summary." if is_call or is_json else ""


def _guidance_in(asked: TextRequest) -> list[str]:
    """Return the style and the instructions of the request, with and without what introduces them; [] without any."""
    tags = (f"</{tag}>" for tag in PROMPT_TAGS)
    behind = asked.text[max((asked.text.rfind(tag) for tag in tags), default=0) :]
    paragraphs = behind.split(PARAGRAPH)
    found = [(part, part.removeprefix(start)) for part in paragraphs for start in _GUIDANCE if part.startswith(start)]
    return [form for forms in found for form in forms]
