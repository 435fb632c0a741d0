"""Telling texts that are no summary from summaries: refusals, error texts, echoes of the request, bare headings."""

import re

from app.context.summaries.transcript import CLOSING_WORDS, CONVERSATION_TAG, EXISTING_TAG, SUMMARISER_SYSTEM_PROMPT
from app.domain.text import is_blank

SHORT_TEXT_CHARACTERS = 400
"""Only a short text can be an error message; a long one that begins like one is a summary of it."""

REFUSAL_CHARACTERS = 1500
"""Refusals are wordier than errors, but none of them has sections or cites positions."""

ECHO_CHARACTERS = 60
"""A text that begins with so much of what the summariser is told repeats it."""

_REFUSAL = re.compile(
    r"""\A\W*+(?:
        (?:i['’]?m|i\ am)\ (?:really\ |very\ |so\ )?(?:sorry|unable|not\ able)\b
      | (?:sorry|apologies|unfortunately),?\ (?:but\ )?i\b
      | i\ (?:can(?:['’]?t|not|\ not)|won['’]?t|will\ not|could(?:n['’]?t|\ not)|must\ decline)\b
      | as\ an?\ (?:ai|(?:large\ )?language\ model)\b
      | es\ tut\ mir\ leid | leider\ kann\ ich | (?:das|dabei|dies(?:en|e|es)?)?\ ?\bkann\ ich\ .{0,60}\bnicht\b
      | ich\ kann\ .{0,60}\bnicht\b
      | (?:je\ suis\ )?désolée?\b | je\ ne\ peux\ pas\b | je\ ne\ suis\ pas\ (?:en|capable)\b | en\ tant\ qu['’]ia\b
      | lo\ siento\b | no\ puedo\b | mi\ dispiace\b | non\ posso\b | (?:me\ )?desculpe\b | sinto\ muito\b | não\ posso\b
      | извините\b | простите\b | к\ сожалению,?\ я\b | я\ не\ могу\b | как\ языковая\ модель
      | (?:很|非常)?抱歉 | 对不起 | 我(?:无法|不能)
      | 申し訳(?:ありません|ございません) | すみません | ごめんなさい
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR = re.compile(
    r"""\A\W*(?:
        (?:(?:fatal|internal|unknown|unexpected|api|server)\ )*error\b
      | (?:\w+\.)*\w*(?:Error|Exception)\b\s*[:(]
      | traceback\ \(most\ recent
      | (?:http\s*)?[45]\d\d\b
      | (?:rate\ limit|too\ many\ requests|service\ unavailable|bad\ gateway|gateway\ time-?out|request\ timed\ out
          |overloaded|quota\ exceeded|context\ length\ exceeded|insufficient_quota)
      | <!doctype | <html | <\?xml
      | "?(?:error|detail|message)"?\s*:\s*["{]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR_WORD = re.compile(
    r"\b(?:error|exception|failed|failure|denied|refused|unavailable|forbidden|timed?[ -]?out|E[A-Z]{5,})\b",
    re.IGNORECASE,
)
_RECORD_TAG = re.compile(r"\[#\d+ (?:user|assistant|tool)[^\[\]\n]*+\]\s*+")
_STRUCTURE = re.compile(r"\[#\d|^#{1,4} |^[^\S\n]*+[-*] ", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:```\w*\s*)?")
_NO_CONTENT = re.compile(
    r"""\A\s*+(?:
        \#{1,6}(?:\s.*+)?
      | (?:\*\*|__)[^*_]*+(?:\*\*|__):?
      | [^\n]{0,80}[:：]
      | (?:the\ |a\ )?(?:conversation\ )?summary\.?
      | [-*_=`~\[\]#\d\s]*+(?:markdown)?
    )\s*+""",
    re.IGNORECASE | re.VERBOSE,
)


def why_no_summary(text: str, record: str = "") -> str:
    """Return why `text` cannot serve as a summary, '' if it can; `record` is the transcript the model read."""
    if is_blank(text):
        return "The summary model returned an empty text."
    if _is_echo(text):
        return "The summary model repeated what it was told."
    if all(_NO_CONTENT.fullmatch(line) for line in text.splitlines()):
        return "The summary model returned headings and no summary."
    said = _RECORD_TAG.sub("", text)
    if _is_refusal(said) or _is_error(said, record):
        return "The summary model returned a refusal or an error text."
    return ""


def _is_refusal(text: str) -> bool:
    if len(text) <= SHORT_TEXT_CHARACTERS and _REFUSAL.match(text) and "[#" not in text:
        return True
    return len(text) <= REFUSAL_CHARACTERS and bool(_REFUSAL.match(text)) and not _STRUCTURE.search(text)


def _is_error(text: str, record: str) -> bool:
    """An error text, also one that stands in the record; where positions are cited it is a summary of it."""
    if len(text) > SHORT_TEXT_CHARACTERS or "[#" in text:
        return False
    if _ERROR.match(text):
        return True
    return bool(_ERROR_WORD.search(text)) and not _STRUCTURE.search(text) and _words(text) in _words(record)


def _is_echo(text: str) -> bool:
    told = text[_opening_length(text) :]
    starts = (
        SUMMARISER_SYSTEM_PROMPT[:ECHO_CHARACTERS],
        "The record to add:",
        "The record:",
        "The existing summary:",
        "The existing summaries of",
        f"<{CONVERSATION_TAG}",
        f"<{EXISTING_TAG}",
        f"{CLOSING_WORDS}, in at most",
    )
    return told.startswith(starts)


def _opening_length(text: str) -> int:
    opening = _OPENING.match(text)
    return opening.end() if opening else 0


def _words(text: str) -> str:
    return " ".join(text.split())
