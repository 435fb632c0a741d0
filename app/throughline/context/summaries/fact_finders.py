"""The patterns of facts, in the order in which they take their text.

Every pattern begins behind a character that cannot belong to the same fact and repeats only bounded, disjoint parts, so
that a scan is linear in the text, hostile or not.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from throughline.context.summaries.fact_checks import (
    is_code,
    is_command,
    is_iban,
    is_ipv6,
    is_named,
    is_path,
    is_phone,
    is_symbol,
    is_ticket,
    is_value,
)
from throughline.context.summaries.fact_words import CURRENCIES, EXTENSIONS, FAILURES, MONTHS, REASONS, UNITS
from throughline.domain.ledger import LedgerKind


@dataclass(frozen=True, slots=True)
class Finder:
    """A pattern: the fact is its group `fact`, else the match; `keep` may refuse it; `names` marks a user's words.

    One that looks at the text `as_written` sees Han and kana; to the others they end a fact.
    """

    kind: LedgerKind
    pattern: re.Pattern[str]
    keep: Callable[[str], bool] = bool
    names: bool = False
    whole_line: bool = False
    as_written: bool = False


DAY = r"\d{1,2}(?:st|nd|rd|th|er|\.|º)?"
CLOCK = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s?[ap]\.?m\b\.?)?"
    r"(?:\s?(?:UTC|GMT|Z|C?E?S?T|[EP]DT|Uhr|h)\b|\s?[+-]\d{2}:?\d{2})?"
)
DATES = (
    rf"\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{CLOCK})?|\d{{4}}-?W\d{{2}}(?:-\d)?|(?:KW|CW)[ ]?\d{{1,2}}(?:[ ]?/[ ]?\d{{4}})?",
    r"\d{4}/\d{1,2}/\d{1,2}|\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})|\d{1,2}\.\s?\d{1,2}\.\s?(?:\d{4}|\d{2}(?!\d))",
    r"\d{1,2}-\d{1,2}-\d{4}",
    r"\d{4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日",
    rf"{DAY}\s(?:of\s|de\s)?(?:{MONTHS})\b\.?(?:,?\s(?:de\s)?\d{{4}}\b)?(?:,?\s(?:at\s|um\s|à\s)?{CLOCK})?",
    rf"(?:{MONTHS})\.?\s(?:de\s)?{DAY}(?![\d:])(?:,?\s\d{{4}}\b)?(?:,?\s(?:at\s)?{CLOCK})?",
    rf"(?:{MONTHS})\.?,?\s(?:de\s)?\d{{4}}",
    rf"{CLOCK}|\d{{1,2}}\s?(?:am|pm|Uhr)\b|Q[1-4][ /]?\d{{4}}",
)
_GROUPED = r"\d{1,3}(?:[ \u00a0\u202f]\d{3}(?!\d)){1,5}(?:[.,]\d{1,9})?"
_ONE_AMOUNT = rf"(?:{_GROUPED}|(?!(?<=\d[ \u00a0\u202f])\d{{3}}(?!\d))\d{{1,18}}(?:[.,']\d{{1,9}}){{0,6}})"
AMOUNT = rf"{_ONE_AMOUNT}(?: ?[-–—] ?{_ONE_AMOUNT}| (?:to|bis|до) {_ONE_AMOUNT})?"
"""Thousands may stand apart; a last group whose others are out of sight is no amount, nor is the end of a range."""


COMMAND_LINE = r"(?:[^\n\\]|\\[^\n]|\\\n){1,400}"
"""A line, and those it goes on in behind a backslash."""


def _finder(kind: LedgerKind, pattern: str, keep: Callable[[str], bool] = bool, *, flags: int = 0) -> Finder:
    return Finder(kind, re.compile(pattern, flags), keep)


def _name_finder(kind: LedgerKind, pattern: str, keep: Callable[[str], bool] = bool) -> Finder:
    return Finder(kind, re.compile(pattern), keep, names=True)


def _finders() -> Iterator[Finder]:
    """Yield the finders; an earlier one takes its text from the later ones."""
    yield from _lines()
    yield from _addresses()
    yield from _identifiers()
    for date in DATES:
        yield _finder(LedgerKind.DATE, rf"(?<![\w.,/:-])(?:{date})(?![\w/-])", flags=re.IGNORECASE)
    yield from _quantities()
    yield from _codes()
    yield from _names()


def _lines() -> Iterator[Finder]:
    yield _finder(LedgerKind.COMMAND, rf"^[ \t]{{0,8}}\$[ \t]+(?P<fact>{COMMAND_LINE})", flags=re.MULTILINE)
    yield _finder(LedgerKind.COMMAND, r"(?<!`)`(?:\$ )?(?P<fact>[^`\n]{2,400})`(?!`)", is_command)
    subject = r"(?<![\w.])(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Failure|Warning)\b"
    yield _finder(LedgerKind.ERROR, rf"{subject}(?::[ \t]?[^\n]{{1,300}})?")
    labels = r"(?:[Ff]atal [Ee]rror|[Ee]rror|ERROR|[Ff]atal|FATAL|panic|FAILED|Fehler|Erreur|Ошибка)"
    yield _finder(
        LedgerKind.ERROR, rf"(?<!\w){labels}(?:\[\w{{1,20}}\]|\(\w{{1,20}}\)|[ \t]\w{{1,20}})?[:：][ \t]?[^\n]{{1,300}}"
    )
    yield _finder(
        LedgerKind.ERROR, r"^[ \t]{0,8}(?:FAILED|ERROR|FATAL|CRITICAL|E  )[ \t][^\n]{2,300}", flags=re.MULTILINE
    )
    pattern = re.compile(rf"(?:{FAILURES})(?![^\n:(]{{0,3}}most recent)(?![ \t]\(most)[^\n]{{0,80}}")
    yield Finder(LedgerKind.ERROR, pattern, whole_line=True)
    yield _finder(LedgerKind.ERROR, rf"(?<![\w.])(?:HTTP(?:/[\d.]{{1,3}})?[ \t])?[1-5]\d\d[ \t](?:{REASONS})\b")
    yield _finder(
        LedgerKind.ERROR,
        r"(?<!\w)(?:exit(?:ed)?[ _](?:with[ ])?(?:code|status)|exited with|returncode|status[ _]code"
        r"|HTTP(?:/[\d.]{1,3})?)[ \t]{0,2}[:=]?[ \t]{0,2}-?\d{1,3}\b",
        flags=re.IGNORECASE,
    )
    yield _finder(
        LedgerKind.ERROR,
        r"(?<!\w)(?:ERR_[A-Z0-9_]{2,60}|ECONN[A-Z]{3,12}|E(?:NOENT|ACCES|PERM|EXIST|ADDRINUSE|TIMEDOUT"
        r"|PIPE|NOMEM|NOSPC|INVAL|AGAIN|BADF|HOSTUNREACH|NOTFOUND|MFILE)|SIG(?:KILL|TERM|SEGV|INT|ABRT))\b",
    )


def _addresses() -> Iterator[Finder]:
    body = r"[^\s<>\"'`|\\^{}\u3000-\u303f\uff01-\uff60]{1,2000}"
    schemes = "https?|ftp|wss?|s3|gs|git|ssh|postgres(?:ql)?|redis|mongodb|mysql|amqp|file|jdbc|sftp"
    yield _finder(LedgerKind.URL, rf"(?<![A-Za-z0-9])(?:{schemes})(?:\+\w{{1,12}})?://{body}", flags=re.IGNORECASE)
    han_host = (
        r"https?://(?=[^\s/]{0,60}[ぁ-ヿ一-鿿])(?:[\w-]{1,63}\.){1,5}(?:[A-Za-z]{2,24}|中国|中國|みんな)(?::\d{2,5})?"
    )
    path = r"(?:/[^\s<>\"'`|\\^{}\u3000-\u303f\uff01-\uff60]{0,500})?"
    yield Finder(LedgerKind.URL, re.compile(rf"(?<![A-Za-z0-9]){han_host}{path}"), as_written=True)
    host = r"[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}"
    yield _finder(LedgerKind.URL, rf"(?<![\w.+-])[\w.+-]{{1,64}}@{host}:[\w.~-]{{0,80}}/[\w.~/-]{{1,200}}")
    yield _finder(LedgerKind.IDENTIFIER, rf"(?<![\w.+-])[\w.+-]{{1,64}}@{host}(?![\w-]|\.\w|:[\w~/])")
    host = r"(?:[a-z0-9-]{1,63}\.){1,5}(?:com|org|net|io|dev|app|ai|edu|gov|co|de|fr|es|it|eu|uk|ru|cn|jp|br|ch|at)"
    yield _finder(LedgerKind.URL, rf"(?<![\w.@/-]){host}(?:(?::\d{{2,5}})?/{body}|\b(?![\w.(-]))", flags=re.IGNORECASE)
    yield from _paths_with_spaces()
    segment = r"(?:[\w.@+%=-]|\\[ ()&']){1,120}"
    yield _finder(
        LedgerKind.PATH,
        rf"(?<![\w/.:<*@%+=\\-])(?:~|\.{{1,2}})?/(?:{segment}/){{0,30}}{segment}(?::\d{{1,6}}){{0,2}}/?",
        is_path,
    )
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![\w-])")


def _paths_with_spaces() -> Iterator[Finder]:
    """Between quotes any; without them a folder of Windows may have them, and a file's name one."""
    start = r"(?:~|\.{1,2})?/|[A-Za-z]:[\\/]"
    yield _finder(LedgerKind.PATH, rf"(?<!\w)(?P<mark>[\"'])(?P<fact>(?:{start})[^\"'\n]{{1,300}})(?P=mark)", is_path)
    word = r"[^\s\\/<>\"'`|?*:;,]{1,100}"
    folders = rf"(?:{word}(?: {word}){{0,4}}\\){{0,30}}"
    file = rf"{word} {word}\.(?:{EXTENSIONS})(?!\w)|[^\s<>\"'`|?*:;,]{{1,300}}"
    yield _finder(LedgerKind.PATH, rf"(?<!\w)(?:[A-Za-z]:[\\/]|\\\\(?=\w)){folders}(?:{file})")


def _numbered() -> Iterator[Finder]:
    """What is known by its form alone: addresses of machines, resources, accounts, telephones."""
    arn = r"arn:aws[\w-]{0,10}:[\w-]{1,40}:[\w-]{0,30}:\d{0,12}:[\w:/.*+=@-]{1,200}"
    yield _finder(LedgerKind.IDENTIFIER, rf"(?<![\w:]){arn}")
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w:-])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w-]|:\w)")
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w:.])[0-9A-Fa-f:]{2,39}(?:/\d{1,3})?(?![\w:])", is_ipv6)
    iban = r"[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,4})?"
    yield _finder(LedgerKind.IDENTIFIER, rf"(?<!\w){iban}(?!\w)", is_iban)
    abroad = r"(?<![\w+.])\+\d{1,3}(?:[ ./-]?\(?\d{1,8}\)?){1,6}"
    at_home = r"(?<![\w.,/:+-])0\d{1,5}(?:[ ]?[/-][ ]?|[ ])\d{3,8}(?:[ -]\d{2,8}){0,3}"
    american = r"(?<![\w.,/:+-])(?:\(\d{2,5}\)[ ]?|\d{3}[-.])\d{3}[ .-]\d{4}"
    for phone in (abroad, at_home, american):
        yield _finder(LedgerKind.IDENTIFIER, rf"{phone}(?!\w|[-./]\d)", is_phone)


def _identifiers() -> Iterator[Finder]:
    yield from _numbered()
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2}|:\d{1,5})?(?![\w.]\w)")
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.-])localhost:\d{2,5}\b|(?<!\w)[Pp]ort[ :=]{1,2}\d{2,5}\b")
    yield _finder(
        LedgerKind.IDENTIFIER,
        r"(?<![\w-])(?:call|msg|run|pi|req|ch|cus|sub|evt|sk|pk|ghp|xoxb)[_-][A-Za-z0-9_-]{6,80}",
        is_code,
    )
    keys = (
        "(?:reservation|booking|order|confirmation|ticket|invoice|tracking|customer|account|user|item|product|payment"
        "|flight|record|case|promo)"
    )
    sort = "(?:id|ids|code|number|no|nr|key|ref|reference|locator)"
    cue = rf"(?<![A-Za-z]){keys}(?:[ _-]?{sort})?s?\"?(?: is| was)?[ :=\"'`([]{{1,4}}"
    yield _finder(
        LedgerKind.IDENTIFIER,
        rf"(?i:{cue})(?P<fact>#?[A-Z]{{0,12}}[A-Z0-9-]{{0,12}}[A-Z0-9]{{4,10}})(?![\w-])",
        is_value,
    )
    sort = "(?:_id|Id|ID|_ids|_code|_key|_number|_ref|_hash|sha|sku|PNR|\\bid)"
    field = rf"(?<!\w)\w{{0,40}}{sort}\"?[ \t]?[:=][ \t]?[\"'\[]{{0,2}}"
    yield _finder(LedgerKind.IDENTIFIER, rf"{field}(?P<fact>#?[A-Za-z0-9][\w.:@-]{{2,100}})", is_value)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w-])[A-Z][A-Z0-9]{1,9}-\d{1,9}(?![\w-])", is_ticket)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w\[&/-])#(?:[A-Z]{1,6}-?\d{2,14}|\d{2,12})(?![\w-])")
    yield _finder(
        LedgerKind.IDENTIFIER, r"(?<![\w.@/-])@?[\w./-]{1,80}(?:[=~]=|@)v?\d{1,6}(?:\.\w{1,20}){1,4}(?![\w-])"
    )


def _codes() -> Iterator[Finder]:
    version = r"v\d{1,5}(?:\.\d{1,6}){1,4}|\d{1,5}(?:\.\d{1,6}){2,4}"
    yield _finder(
        LedgerKind.IDENTIFIER,
        rf"(?<![\w.,:-])(?:{version})(?:[-+]?(?:alpha|beta|rc|dev|a|b|post)[\w.]{{0,20}}|[+-][\w.]{{1,30}})?(?![\w])",
    )
    named = (
        "(?:[Vv]ersion|Python|Node|Postgres(?:QL)?|Java|Go|Ruby|PHP|Django|React|Ubuntu|Debian|Rust|Redis|macOS|iOS)"
    )
    yield _finder(LedgerKind.IDENTIFIER, rf"(?<!\w){named} v?\d{{1,5}}(?:\.\d{{1,6}}){{0,3}}\b")
    files = rf"[\w+-]{{1,80}}(?:\.[\w+-]{{1,40}}){{0,4}}\.(?:{EXTENSIONS})(?::\d{{1,6}}){{0,2}}(?![\w@/(-])"
    folders = r"(?:[\w.@+-]{1,100}/){1,30}[\w.@+-]{0,100}(?::\d{1,6}){0,2}"
    yield _finder(LedgerKind.PATH, rf"(?<![\w/.@:%$\\-])(?:{folders})", is_path)
    yield _finder(LedgerKind.PATH, rf"(?<![\w/.@:%$\\-])(?:{files})", is_path, flags=re.IGNORECASE)
    yield _finder(
        LedgerKind.PATH,
        r"(?<![\w/.-])(?:Makefile|Dockerfile|\.(?:env|gitignore|dockerignore|bashrc|zshrc|npmrc"
        r"|editorconfig)(?:\.\w{1,20})?)(?![\w/])",
    )
    yield _finder(LedgerKind.IDENTIFIER, r"(?<!\w)0x[0-9a-fA-F]{2,64}(?!\w)")
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w+/=.-])(?:[0-9a-f]{7,128}|[0-9A-F]{7,128})(?![\w+/=-])", is_code)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w+/=.-])[A-Z0-9]{5,24}(?![\w+/=-])", is_code)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.])[A-Za-z]{1,40}(?:_[A-Za-z0-9]{1,60}){1,8}(?![\w(])", is_code)


def _quantities() -> Iterator[Finder]:
    scale = r"(?:\s?(?:k|m|bn|million|billion|thousand|Mio\.?|Mrd\.?|万|亿)(?!\w))?"
    yield _finder(LedgerKind.NUMBER, rf"(?<![\w.,])[-+~≈]?(?:US|R|A|C)?[$€£¥₹₽]\s?{AMOUNT}{scale}(?!\w)")
    yield _finder(LedgerKind.NUMBER, rf"(?<![\w.,])(?:{CURRENCIES})[ \u00a0]?{AMOUNT}{scale}(?!\w)")
    yield _finder(
        LedgerKind.NUMBER, rf"(?<![\w.,/:])(?<!\w[-–])[-+±~≈]?{AMOUNT}{scale}[ \u00a0-]?(?:{UNITS})(?!\w|-\w)"
    )
    yield _finder(
        LedgerKind.NUMBER, rf"(?<![\w.,/:])[-+]?{AMOUNT}\s?(?:[万亿]?[元円人个個天年月秒件条字行]|小时|分钟|時間|分)"
    )


def _names() -> Iterator[Finder]:
    symbol = r"[A-Za-z_][A-Za-z0-9]{0,60}"
    yield _name_finder(LedgerKind.IDENTIFIER, r"(?<!`)`(?P<fact>[^`\n]{2,120})`(?!`)", is_named)
    yield _name_finder(
        LedgerKind.IDENTIFIER, rf"(?<![\w.@/-]){symbol}(?:[._]{symbol}){{1,8}}(?:\(\))?(?![\w@/])", is_symbol
    )
    yield _name_finder(LedgerKind.IDENTIFIER, r"(?<![\w.])[A-Za-z_]\w{2,60}\(\)")
    yield _name_finder(LedgerKind.NUMBER, r"(?<![\w.,/:#-])\d{1,12}(?:[.,]\d{1,9}){0,4} [a-z]{3,20}s(?!\w)")


FINDERS = tuple(_finders())
