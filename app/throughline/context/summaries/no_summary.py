"""Telling texts that are no summary from summaries: refusals, error texts, echoes of the request, bare headings."""

import re

from throughline.context.summaries.transcript import (
    CLOSING_WORDS,
    CONVERSATION_TAG,
    EXISTING_TAG,
    SUMMARISER_SYSTEM_PROMPT,
)
from throughline.domain.text import is_blank

SHORT_TEXT_CHARACTERS = 400
"""Only a short text is an error message for how it begins; a long one is a summary of it, unless a program wrote it."""

REFUSAL_CHARACTERS = 1500
"""Refusals are wordier than errors, but none of them has sections or cites positions."""

DOWN_CHARACTERS = 200
"""What a server says of itself in words that a summary may begin with too is said shortly."""

ECHO_CHARACTERS = 60
"""A text that begins with so much of what the summariser is told repeats it."""

MOST_LABELS = 8
"""More headings and labels than these before the first word are not looked through."""

_HELP = (
    r"(?:summari[sz]e|help|assist|comply|fulfil|provide|do\ (?:that|this|so)|continue|process|create|write|generate"
    r"|produce|access|see|engage|discuss)"
)
_REFUSAL = re.compile(
    r"""\A\W*+(?:
        (?:i['’]?m|i\ am)\ (?:really\ |very\ |so\ )?(?:sorry|unable|not\ able)\b
      | (?:sorry|apologies|unfortunately),?\ (?:but\ )?i\b
      | sorry\s*+[,.!:–—-] | (?:my\ )?apologies\s*+(?:[,.!:;–—-]|but\b|i\b)
      | i\ (?:do\ |must\ |sincerely\ )?apologi[sz]e\b
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
_PLAIN_REFUSAL = re.compile(
    rf"""\A\W*+(?:
        (?:(?:(?:i['’]?m|i\ am)\ )?(?:really\ |very\ |so\ )?sorry|(?:my\ )?apologies|i\ apologi[sz]e)
            \W{{1,3}}(?:but\ )?(?:i|this|that|the|your|we|it)\b
      | (?:i['’]?m|i\ am)\ (?:unable|not\ able)\ to\ {_HELP}
      | i\ (?:can(?:['’]?t|not|\ not)|won['’]?t|will\ not|could(?:n['’]?t|\ not))\ {_HELP}
      | as\ an?\ (?:ai|(?:large\ )?language\ model)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""A refusal also below a heading, where a user's own words may say that they cannot do something."""

_NOT_DONE = re.compile(
    r"""\A\W*+(?:
        (?:this|the|your)\ (?:request|content|conversation|message|prompt|response|text)\ (?:
            can(?:not|['’]t|\ not)\ be\ (?:fulfilled|completed|processed|summari[sz]ed|answered|displayed|generated)
          | (?:was|is|has\ been)\ (?:blocked|filtered|flagged|rejected|refused|stopped)\b
              .{0,30}\b(?:content|safety|moderation|usage|filter|polic(?:y|ies))\b
          | violates\ (?:our|the|my|usage|content|safety)\b )
      | (?:please|could\ you|can\ you)\ (?:\w+\ )?(?:provide|share|paste|send|give)\ (?:me\ )?(?:with\ )?
            (?:the|a|your)\ (?:\w+\ )?(?:conversation|transcript|record|chat|dialog|text\ (?:you|to))
      | [^\n]{0,80}\b(?:nothing|no\ (?:conversation|content|record|transcript|messages?|text|information))
            \ (?:\w+\ ){0,4}to\ (?:be\ )?summari[sz]ed?\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_ORDERS = re.compile(
    r"""\A[\s#*_>-]*+(?:
        you\ are\ (?:now\ )?(?:an?|the)\ (?:[\w-]+\ ){0,3}(?:assistant|ai|model|chatbot|bot|agent)\b
      | (?:please\ )?(?:ignore|disregard|forget)\ (?:all\ |any\ )?(?:of\ )?(?:the\ |your\ |my\ )?
            (?:previous|prior|above|earlier|preceding|other)\ (?:instruction|prompt|message|rule|direction|order)s?\b
      | system\ (?:prompt|message)\s*+:
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_STATUS = (
    r"[45]\d\d\b[\s:,–—-]*+(?:\Z|internal|bad|service|too\ many|unauthori|forbidden|not\ found|gateway|request|payment"
    r"|(?:server\ |client\ )?error|unprocess|conflict|overloaded|time)"
)
_ERROR = re.compile(
    rf"""\A\W*(?:
        (?:(?:fatal|internal|unknown|unexpected|api|server)\ )*error\b
            \s*+(?:[:({{\[–—-]|[.!]*+\Z|code\b|\d|occurred\b|(?:while\ )?(?:processing|generating|calling)\b)
      | (?:\w+\.)*\w*(?:Error|Exception)\b\s*[:(]
      | http[\s/\d.]{{0,6}}[45]\d\d\b | {_STATUS}
      | "?(?:error|detail|message)"?\s*:\s*["{{]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_DOWN = re.compile(
    r"""\A\W*+(?:
        (?:rate\ limit|quota|token\ limit|context\ (?:length|window))\ (?:was\ |is\ |has\ been\ )?(?:exceeded|reached)
      | rate\ limit\W*+\Z | too\ many\ requests | service\ (?:is\ )?(?:temporarily\ )?unavailable | bad\ gateway
      | gateway\ time-?out | (?:the\ )?(?:request|operation|connection)\ (?:has\ )?(?:timed\ out|timeout) | overloaded\b
      | insufficient[_ ](?:quota|credits?|funds)\b
      | your\ (?:credit|account)\ balance\b | you\ (?:have\ )?exceeded\ your\b
      | your\ (?:api\ key|account|organi[sz]ation|plan)\ (?:is|has|was|does)\b
      | (?:invalid|incorrect|missing|expired|no)\ (?:x-)?api[ _-]?key
      | api[ _-]?key\ (?:is\ )?(?:invalid|not\ valid)
      | (?:the\ )?model(?:\ [^\s]{1,80})?
            \ (?:not\ found|does\ not\ exist|(?:is\ )?(?:overloaded|not\ available|loading))
      | (?:unauthori[sz]ed|forbidden|(?:access|permission)\ denied|authentication\ (?:failed|required)
          |connection\ (?:error|refused|reset(?:\ by\ peer)?|aborted))\s*+(?:\(\d{3}\)\s*+)?(?:[:.!]|\Z)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_MACHINE = re.compile(
    r"""\A\s*+(?:```\w*+\s*+)?+(?:
        traceback\ \(most\ recent | <!doctype | <html | <\?xml
      | \{\s*"(?:error|errors|detail)"\s*: | \{\s*"type"\s*:\s*"error"
      | (?:error\ code|http(?:\ status|\ error)?|error)\s*+:?\s*+[45]\d\d\b
      | (?:[\w.]+)(?:Error|Exception):\s
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What programs write and nobody else, at whatever length."""

_ABOUT_A_USER = re.compile(r"\b(?:the )?user(?:['’]s)?\b", re.IGNORECASE)
"""An error text tells of no user; a summary of what was said of an error mostly does."""

_ERROR_WORD = re.compile(
    r"\b(?:error|exception|failed|failure|denied|refused|unavailable|forbidden|timed?[ -]?out|E[A-Z]{5,})\b",
    re.IGNORECASE,
)
_RECORD_TAG = re.compile(r"\[#\d+ (?:user|assistant|tool|calls)[^\[\]\n]*+\]\s*+")
_STRUCTURE = re.compile(r"\[#\d|^#{1,4} |^[^\S\n]*+[-*] ", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:```\w*\s*)?")
_NOTHING = (
    r"[(\[]?(?:none|n/?a|null|nil|nothing|ok(?:ay)?|done|yes|no|sure|true|false|undefined|empty|\{\s*+\})[)\]]?[.!]*+"
)
_NO_CONTENT = re.compile(
    rf"""\A\s*+(?:
        \#{{1,6}}(?:\s.*+)?
      | (?:\*\*|__)[^*_]*+(?:\*\*|__):?
      | [^\n]{{0,80}}[:：]
      | (?:the\ |a\ )?(?:conversation\ )?summary\.?
      | (?:[-*•]\s++)?(?:(?:\*\*|__)?[\w\ ]{{1,30}}+:(?:\*\*|__)?\s*+)?{_NOTHING}
      | [-*_=`~\[\]{{}}#\d\s]*+(?:markdown)?
    )\s*+""",
    re.IGNORECASE | re.VERBOSE,
)
_LABEL = re.compile(
    r"""\A\s*+(?:
        \#{1,6}[^\n]*+\n
      | (?:\*\*|__)[^*_\n]{1,60}+(?:\*\*|__)[\s:：]*+
      | (?:here(?:\ is|['’]s)\ )?(?:the\ |a\ |my\ )?(?:conversation\ |existing\ |updated\ |new\ )?
            (?:summary|zusammenfassung)(?:\ of[^\n:]{0,60}+)?\s*+[:：]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_PIECE_END = re.compile(r"(?<=[.!?。！？])\s++|\n")


def why_no_summary(text: str, record: str = "") -> str:
    """Return why `text` cannot serve as a summary, '' if it can; `record` is the transcript the model read."""
    if is_blank(text):
        return "The summary model returned an empty text."
    if _is_echo(text):
        return "The summary model repeated what it was told."
    if all(_NO_CONTENT.fullmatch(line) for line in text.splitlines()):
        return "The summary model returned headings and no summary."
    whole = _RECORD_TAG.sub("", _once(text))
    said = _unlabelled(whole)
    if _ORDERS.match(said) and "[#" not in text:
        return "The summary model returned instructions and no summary."
    if _is_refusal(said, whole) or _is_error(said, record):
        return "The summary model returned a refusal or an error text."
    return ""


def _once(text: str) -> str:
    """Return `text` without lines and sentences that stand in it before: an error said fifty times is a short one."""
    pieces = [piece.strip() for piece in _PIECE_END.split(text)]
    unique = dict.fromkeys(piece for piece in pieces if piece)
    return text if len(unique) == len(pieces) else "\n".join(unique)


def _unlabelled(text: str) -> str:
    """Return `text` without the headings and labels it begins with."""
    for _ in range(MOST_LABELS):
        label = _LABEL.match(text)
        if label is None:
            break
        text = text[label.end() :]
    return text


def _is_refusal(said: str, whole: str) -> bool:
    """`said` is the text without the labels it begins with; sections and citations count where they stand."""
    refusal = (_PLAIN_REFUSAL if said != whole else _REFUSAL).match(said)
    if len(said) <= SHORT_TEXT_CHARACTERS and "[#" not in said:
        return bool(refusal or (_NOT_DONE.match(said) and not _ABOUT_A_USER.search(said)))
    return len(said) <= REFUSAL_CHARACTERS and bool(refusal) and not _STRUCTURE.search(whole)


def _is_error(text: str, record: str) -> bool:
    """An error text, also one that stands in the record; where positions are cited it is a summary of it."""
    if "[#" in text or _ABOUT_A_USER.search(text):
        return False
    if _MACHINE.match(text) and not _STRUCTURE.search(text):
        return True
    if len(text) > SHORT_TEXT_CHARACTERS:
        return False
    if _ERROR.match(text) or (len(text) <= DOWN_CHARACTERS and _DOWN.match(text)):
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
