"""Detection of texts that are no summary: refusals, error texts, echoes of the request, bare headings.

`check_summary.py` calls it for the summary model's answers. Refusals and errors are recognised by their first words.
"""

import re

from throughline.context.summaries import summary_prompt
from throughline.context.summaries.word_lists import one_of
from throughline.domain.text import is_blank

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
_ORDERS = one_of("you're a* … assistant, ignore … instructions, disregard … instructions, system prompt:")
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

_RECORD_TAG = re.compile(r"\[#\d+ (?:user|assistant|tool|calls)[^\[\]\n]*+\]\s*+")
_STRUCTURE = re.compile(r"\[#\d|^#{1,4} |^[^\S\n]*+[-*] ", re.MULTILINE)
_LABEL = re.compile(r"(?i)\A\s*+(?:#[^\n]*+(?:\n|\Z)|\*\*[^*\n]{1,60}+\*\*:?|[^\n:.]{0,40}summary[^\n:.]{0,60}[:：])")
_NOTHING = r"none|n/?a|null|nothing|ok|okay|done|yes|no|markdown|summary|rate limit"
_NO_CONTENT = re.compile(rf"(?i)\s*+(?:#.*|\*\*[^*]*+\*\*:?|.{{0,80}}[:：]|[\W\d_]*+(?:{_NOTHING})?[\W_]*+)")
_OPENING = re.compile(r"\A\s*+(?:```\w*\s*)?")
_PIECE_END = re.compile(r"(?<=[.!?。！？])\s++|\n")


def why_no_summary(text: str, record: str = "") -> str:
    """Return why `text` cannot serve as a summary, '' if it can; `record` is the transcript that the model read."""
    if is_blank(text):
        return "The summary model returned an empty text."
    if _OPENING.sub("", text).startswith(_ECHOES):
        return "The summary model repeated what it was told."
    if all(_NO_CONTENT.fullmatch(line) for line in text.splitlines()):
        return "The summary model returned headings and no summary."
    whole = _RECORD_TAG.sub("", _once(text))
    said = _unlabelled(whole)
    if _ORDERS.match(_plain(said)) and "[#" not in text:
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
