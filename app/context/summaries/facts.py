"""Finding facts in text, verbatim: paths, URLs, identifiers, numbers with units, dates, commands, errors.

Every pattern begins behind a character that cannot belong to the same fact and repeats only bounded, disjoint parts, so
that a scan is linear in the text, hostile or not. The ledger calls this for every text of a message.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.domain.ledger import LedgerKind

FACT_CHARACTERS = 160
"""A longer fact is cut and ends in `…`: one line of a terminal, twice."""

BLOB_CHARACTERS = 60
"""A run of letters and digits of this length in mixed case is base64 (wrapped at 64 or 76), not a name."""


PATH_SEGMENT = 12
"""A run with fewer slashes than one in so many characters is no path: base64 has one in 64."""

SHORTEST_FOLDERS = 3
"""So many parts make a path of a text that shows it in no other way: `app/context/plan`, not `and/or`."""

SHORTEST_VALUE = 3
"""A value behind a field like `order_id` has at least so many characters."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact as it stands in a text; `start` is where."""

    kind: LedgerKind
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class _Finder:
    """A pattern: the fact is its group `fact`, else the match; `keep` may refuse it; `names` marks a user's words."""

    kind: LedgerKind
    pattern: re.Pattern[str]
    keep: Callable[[str], bool] = bool
    names: bool = False
    whole_line: bool = False


def find_facts(text: str, *, with_names: bool) -> tuple[Fact, ...]:
    """Return the facts of `text` in the order they stand there, each once and none inside another.

    `with_names` also takes code symbols (`snake_case`, `dotted.name`, `call()`, backticked words) and counted things
    (`42 customers`): what a user names matters, in a program's output it is noise.
    """
    text = _without_blobs(text)
    shadow = _HAN.sub("、", text)  # these scripts set no space between a fact and its neighbours
    taken = bytearray(len(text))
    found = {
        (fact.kind, fact.text): fact
        for finder in _FINDERS
        if with_names or not finder.names
        for fact in _matches(finder, text, shadow, taken)
    }
    return tuple(sorted(found.values(), key=lambda fact: fact.start))


def one_line(text: str, most: int) -> str:
    """Return `text` with its white space single, cut visibly to `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _matches(finder: _Finder, text: str, shadow: str, taken: bytearray) -> Iterator[Fact]:
    for match in finder.pattern.finditer(shadow):
        start, stop = _span(finder, match, text)
        if taken.find(1, start, stop) >= 0 or not finder.keep(text[start:stop]):
            continue
        shown = min(stop - start, FACT_CHARACTERS)
        taken[start : start + shown] = b"\x01" * shown
        yield Fact(finder.kind, one_line(text[start:stop], FACT_CHARACTERS), start)


def _span(finder: _Finder, match: re.Match[str], text: str) -> tuple[int, int]:
    start, stop = match.span("fact") if "fact" in finder.pattern.groupindex else match.span()
    if finder.whole_line:
        before = text.rfind("\n", max(0, start - FACT_CHARACTERS // 2), start)
        start = before + 1 if before >= 0 else start
    return _trimmed(text, start, stop)


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """Leave out what punctuation follows, but for the bracket that closes one inside, and white space before."""
    while stop > start and text[stop - 1] in _TRAILING:
        stop -= 1
    if text[stop : stop + 1] == ")" and text.count("(", start, stop) > text.count(")", start, stop):
        stop += 1
    while start < stop and text[start].isspace():
        start += 1
    return start, stop


def _without_blobs(text: str) -> str:
    return _RUN.sub(lambda run: "\n" * len(run[0]) if _is_blob(run[0]) else run[0], text)


def _is_blob(run: str) -> bool:
    """Tell base64 from long paths and long hex: three kinds of characters, no path's slashes."""
    is_mixed = not run.islower() and not run.isupper() and any(letter.isdigit() for letter in run)
    return len(run) > 4 * FACT_CHARACTERS or (is_mixed and run.count("/") * PATH_SEGMENT < len(run))


def _is_path(text: str) -> bool:
    """Tell `app/main.py`, `./run`, `/etc/hosts`, `a/b/c` from `and/or`, `km/h`, `/help`, `Node.js`."""
    if not any(letter.isalpha() for letter in text) or _NO_FILES.fullmatch(text):
        return False
    if text.startswith(("~/", "./", "../")) or _FILE_NAME.search(text):
        return True
    parts = [part for part in text.strip("~/").split("/") if part]
    return _is_from_root(parts) if text.startswith("/") else _is_of_folders(parts)


def _is_from_root(parts: Sequence[str]) -> bool:
    return len(parts) > 1 or (bool(parts) and _ROOTS.fullmatch(parts[0]) is not None)


def _is_of_folders(parts: Sequence[str]) -> bool:
    return len(parts) >= SHORTEST_FOLDERS and all(_FOLDER.fullmatch(part) for part in parts)


def _is_code(text: str) -> bool:
    return any(letter.isdigit() for letter in text) and any(letter.isalpha() for letter in text)


def _is_ticket(text: str) -> bool:
    return _NO_TICKETS.fullmatch(text.partition("-")[0]) is None


def _is_value(text: str) -> bool:
    """Refuse what stands behind a word like `id` and identifies nothing."""
    return len(text) >= SHORTEST_VALUE and text.lower() not in _NO_VALUES


def _is_symbol(text: str) -> bool:
    """Refuse abbreviations (`e.g`) and sentences without a space between (`done.Next`)."""
    first, dot, rest = text.partition(".")
    return not dot or (len(first) > 1 and len(rest) > 1 and not (rest[0].isupper() and first.islower()))


def _is_command(text: str) -> bool:
    first = (text.split(maxsplit=1) or [""])[0]
    return _PROGRAMS.fullmatch(first.rpartition("/")[2]) is not None


def _is_named(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


_TRAILING = " \t\r\n.,;:!?)]}>'\"*_`、。，；：！？）」"
_HAN = re.compile(r"[ぁ-ヿ一-鿿](?<![元円人个個天年月日秒件条字行小时分钟時間万亿])")
_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{BLOB_CHARACTERS},}}")
_ROOTS = re.compile(r"bin|boot|dev|etc|home|lib|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var|data|app")
_FOLDER = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_NO_VALUES = frozenset(("null", "none", "true", "false", "undefined", "the", "and"))
_NO_FILES = re.compile(r"(?:node|vue|next|react|three|d3|express|nuxt|chart|ember)\.js", re.IGNORECASE)
_NO_TICKETS = re.compile(r"UTF|SHA|MD|AES|RSA|GPT|ISO|COVID|TLS|HTTP|BASE|ISBN|TOP")
_EXTENSIONS = (
    "py|pyi|ipynb|js|mjs|cjs|ts|tsx|jsx|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|md|rst|txt|log|csv|tsv|parquet|sql"
    "|sqlite|db|html?|css|scss|xml|svg|png|jpe?g|gif|webp|pdf|docx?|xlsx?|pptx?|zip|tar|gz|tgz|bz2|xz|7z|rar|exe|dll|so"
    "|sh|bash|zsh|ps1|bat|cmd|go|rs|rb|php|java|kt|swift|c|cc|cpp|h|hpp|cs|vue|svelte|tf|proto|pem|key|crt|bak|tmp|mp3"
    "|mp4|wav|mov|diff|patch|service|gradle|properties|lua|pl|r|m|tex|bib|eml|ics"
)
_FILE_NAME = re.compile(
    rf"(?:\.(?:{_EXTENSIONS})|(?:^|/)(?:Makefile|Dockerfile|README|LICENSE|\.[a-z]{{3,20}}))(?::\d+)*$", re.IGNORECASE
)
_PROGRAMS = re.compile(
    r"git|gh|docker|docker-compose|podman|kubectl|helm|terraform|ansible|make|cmake|ninja|npm|npx|pnpm|yarn|node|bun"
    r"|deno|python|python3|pip|pip3|pipx|uv|poetry|pytest|ruff|mypy|black|tox|cargo|rustc|go|mvn|gradle|java|javac"
    r"|dotnet|ruby|bundle|rails|php|composer|curl|wget|ssh|scp|rsync|ls|cd|cp|mv|rm|mkdir|chmod|chown|ln|cat|head"
    r"|tail|less|grep|rg|find|sed|awk|sort|uniq|xargs|tar|zip|unzip|ps|kill|killall|top|df|du|free|systemctl"
    r"|journalctl|service|apt|apt-get|brew|dnf|yum|apk|snap|psql|pg_dump|mysql|redis-cli|sqlite3|mongosh|aws|gcloud"
    r"|az|alembic|throughline|export|source|sudo|env|which|touch|echo|vim|nano|code|open|crontab|nginx|openssl|jq"
    r"|ffmpeg|convert|su|screen|tmux|nohup|time"
)
_MONTHS = (
    r"jan(?:uary|uar|vier|eiro)?|feb(?:ruary|ruar|rero|braio)?|fév(?:rier)?|fevereiro|mar(?:ch|s|zo|ço)?"
    r"|märz|apr(?:il|ile)?"
    r"|avril|abril|may|mai|mayo|maggio|maio|june?|juni|juin|junio|giugno|junho|july?|juli|juillet|julio"
    r"|luglio|julho|aug(?:ust)?"
    r"|août|agosto|sep(?:t|tember|tembre|tiembre)?|settembre|setembro|oct(?:ober|obre|ubre)?|okt(?:ober)?"
    r"|ottobre|outubro"
    r"|nov(?:ember|embre|iembre|embro)?|dec(?:ember)?|dez(?:ember|embro)?|déc(?:embre)?|diciembre|dicembre"
    r"|enero|gennaio"
    r"|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th|er|\.|º)?"
_CLOCK = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s?[ap]\.?m\b\.?)?"
    r"(?:\s?(?:UTC|GMT|Z|C?E?S?T|[EP]DT|Uhr|h)\b|\s?[+-]\d{2}:?\d{2})?"
)
_DATES = (
    rf"\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK})?",
    r"\d{4}/\d{1,2}/\d{1,2}|\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})|\d{1,2}\.\s?\d{1,2}\.\s?(?:\d{4}|\d{2}(?!\d))",
    r"\d{1,2}-\d{1,2}-\d{4}",
    r"\d{4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日",
    rf"{_DAY}\s(?:of\s|de\s)?(?:{_MONTHS})\b\.?(?:,?\s(?:de\s)?\d{{4}}\b)?(?:,?\s(?:at\s|um\s|à\s)?{_CLOCK})?",
    rf"(?:{_MONTHS})\.?\s(?:de\s)?{_DAY}(?![\d:])(?:,?\s\d{{4}}\b)?(?:,?\s(?:at\s)?{_CLOCK})?",
    rf"(?:{_MONTHS})\.?,?\s(?:de\s)?\d{{4}}",
    rf"{_CLOCK}|\d{{1,2}}\s?(?:am|pm|Uhr)\b|Q[1-4][ /]?\d{{4}}",
)
_AMOUNT = r"\d{1,18}(?:[.,'\u00a0\u202f]\d{1,9}){0,6}"
_UNITS = (
    r"%|‰|°\s?[CFK]?|[kmµnμ]?s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?"
    r"|[kKMGTP]i?B(?:/s|ps)?|bytes?"
    r"|[kKMGT]?bits?(?:/s)?|[kKMGT]bps|[kcmµ]?m[²³23]?|miles?|mi|km/h|mph|m/s|ft|feet|inch(?:es)?|[kmµ]?g"
    r"|lbs?|oz|tons?|tonnes?"
    r"|[kMG]?Wh?|m?V|m?Ah?|Ω|[kMGT]?Hz|dB|rpm|[mc]?l|liters?|litres?|gallons?|fps|px|dpi|r?em|pt|tokens?"
    r"|messages?|rows?"
    r"|requests?(?:/s)?|req/s|[rq]ps|users?|items?|lines?|files?|characters?|words?|pages?|people|persons?"
    r"|cores?|threads?|workers?"
    r"|nodes?|replicas?|pods?|retries|attempts?|tests?|points?|times|x|euros?|dollars?|pounds?|yen|cents?"
    r"|EUR|USD|GBP|CHF|JPY|CNY|BRL"
    r"|RUB|[$€£¥₽₹]|million|billion|thousand|k|Mio\.?|Mrd\.?|Sekunden?|Minuten?|Stunden?|Tagen?|Tage?"
    r"|Wochen?|Monaten?|Monate?|Jahren?"
    r"|Nachrichten|Zeilen|secondes?|heures?|jours?|semaines?|mois|ans|segundos?|minutos?|horas?|días?"
    r"|dias?|semanas?|meses|años?"
    r"|anos?|giorni|ore|minuti|secondi|settimane|mesi|anni|секунды?|минуты?|минут|часов|часа|дней|дня"
    r"|недель|месяцев|лет|года|рублей|руб"
    r"|[万亿]?[元円人个個天年月日秒件条字行个]|小时|分钟|时间|時間|分"
)
_REASONS = (
    "Bad Request|Unauthorized|Payment Required|Forbidden|Not Found|Method Not Allowed|Not Acceptable"
    "|Request Timeout|Conflict|Gone"
    "|Payload Too Large|Unsupported Media Type|Unprocessable Entity|Unprocessable Content|Too Many Requests"
    "|Internal Server Error|Not Implemented|Bad Gateway|Service Unavailable|Gateway Timeout"
)
_FAILURES = (
    "command not found|No such file or directory|Permission denied|[Cc]onnection (?:refused|reset"
    "|timed out)|Segmentation fault"
    "|Killed|core dumped|Out of memory|[Nn]o space left on device|Address already in use|npm ERR!"
    "|Traceback|Deadlock detected"
)


def _finder(kind: LedgerKind, pattern: str, keep: Callable[[str], bool] = bool, *, flags: int = 0) -> _Finder:
    return _Finder(kind, re.compile(pattern, flags), keep)


def _name_finder(kind: LedgerKind, pattern: str, keep: Callable[[str], bool] = bool) -> _Finder:
    return _Finder(kind, re.compile(pattern), keep, names=True)


def _finders() -> Iterator[_Finder]:
    """Yield the finders; an earlier one takes its text from the later ones."""
    yield from _lines()
    yield from _addresses()
    yield from _identifiers()
    for date in _DATES:
        yield _finder(LedgerKind.DATE, rf"(?<![\w.,/:-])(?:{date})(?![\w/-])", flags=re.IGNORECASE)
    yield from _codes()
    yield from _quantities()
    yield from _names()


def _lines() -> Iterator[_Finder]:
    yield _finder(LedgerKind.COMMAND, r"^[ \t]{0,8}\$[ \t]+(?P<fact>[^\n]{1,400})", flags=re.MULTILINE)
    yield _finder(LedgerKind.COMMAND, r"(?<!`)`(?:\$ )?(?P<fact>[^`\n]{2,400})`(?!`)", _is_command)
    subject = r"(?<![\w.])(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Failure|Warning)\b"
    yield _finder(LedgerKind.ERROR, rf"{subject}(?::[ \t]?[^\n]{{1,300}})?")
    labels = r"(?:[Ff]atal [Ee]rror|[Ee]rror|ERROR|[Ff]atal|FATAL|panic|FAILED|Fehler|Erreur|Ошибка)"
    yield _finder(
        LedgerKind.ERROR, rf"(?<!\w){labels}(?:\[\w{{1,20}}\]|\(\w{{1,20}}\)|[ \t]\w{{1,20}})?[:：][ \t]?[^\n]{{1,300}}"
    )
    yield _finder(
        LedgerKind.ERROR, r"^[ \t]{0,8}(?:FAILED|ERROR|FATAL|CRITICAL|E  )[ \t][^\n]{2,300}", flags=re.MULTILINE
    )
    pattern = re.compile(rf"(?:{_FAILURES})(?![^\n:(]{{0,3}}most recent)(?![ \t]\(most)[^\n]{{0,80}}")
    yield _Finder(LedgerKind.ERROR, pattern, whole_line=True)
    yield _finder(LedgerKind.ERROR, rf"(?<![\w.])(?:HTTP(?:/[\d.]{{1,3}})?[ \t])?[1-5]\d\d[ \t](?:{_REASONS})\b")
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


def _addresses() -> Iterator[_Finder]:
    body = r"[^\s<>\"'`|\\^{}\u3000-\u303f\uff01-\uff60]{1,2000}"
    schemes = "https?|ftp|wss?|s3|gs|git|ssh|postgres(?:ql)?|redis|mongodb|mysql|amqp|file|jdbc|sftp"
    yield _finder(LedgerKind.URL, rf"(?<![A-Za-z0-9])(?:{schemes})(?:\+\w{{1,12}})?://{body}", flags=re.IGNORECASE)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")
    host = r"(?:[a-z0-9-]{1,63}\.){1,5}(?:com|org|net|io|dev|app|ai|edu|gov|co|de|fr|es|it|eu|uk|ru|cn|jp|br|ch|at)"
    yield _finder(LedgerKind.URL, rf"(?<![\w.@/-]){host}(?:(?::\d{{2,5}})?/{body}|\b(?![\w.(-]))", flags=re.IGNORECASE)
    yield _finder(LedgerKind.PATH, r"(?<!\w)(?:[A-Za-z]:[\\/]|\\\\(?=\w))[^\s<>\"'`|?*:;,]{1,300}")
    segment = r"[\w.@+%=-]{1,120}"
    yield _finder(
        LedgerKind.PATH,
        rf"(?<![\w/.:<*@%+=\\-])(?:~|\.{{1,2}})?/(?:{segment}/){{0,30}}{segment}(?::\d{{1,6}}){{0,2}}/?",
        _is_path,
    )
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![\w-])")


def _identifiers() -> Iterator[_Finder]:
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2}|:\d{1,5})?(?![\w.]\w)")
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.-])localhost:\d{2,5}\b|(?<!\w)[Pp]ort[ :=]{1,2}\d{2,5}\b")
    yield _finder(
        LedgerKind.IDENTIFIER,
        r"(?<![\w-])(?:call|msg|run|pi|req|ch|cus|sub|evt|sk|pk|ghp|xoxb)[_-][A-Za-z0-9_-]{6,80}",
        _is_code,
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
        _is_value,
    )
    sort = "(?:_id|Id|ID|_ids|_code|_key|_number|_ref|_hash|sha|sku|PNR|\\bid)"
    field = rf"(?<!\w)\w{{0,40}}{sort}\"?[ \t]?[:=][ \t]?[\"'\[]{{0,2}}"
    yield _finder(LedgerKind.IDENTIFIER, rf"{field}(?P<fact>#?[A-Za-z0-9][\w.:@-]{{2,100}})", _is_value)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w-])[A-Z][A-Z0-9]{1,9}-\d{1,9}(?![\w-])", _is_ticket)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w\[&/-])#(?:[A-Z]{1,6}-?\d{2,14}|\d{2,12})(?![\w-])")
    yield _finder(
        LedgerKind.IDENTIFIER, r"(?<![\w.@/-])@?[\w./-]{1,80}(?:[=~]=|@)v?\d{1,6}(?:\.\w{1,20}){1,4}(?![\w-])"
    )


def _codes() -> Iterator[_Finder]:
    version = r"v\d{1,5}(?:\.\d{1,6}){1,4}|\d{1,5}(?:\.\d{1,6}){2,4}"
    yield _finder(
        LedgerKind.IDENTIFIER,
        rf"(?<![\w.,:-])(?:{version})(?:[-+]?(?:alpha|beta|rc|dev|a|b|post)[\w.]{{0,20}}|[+-][\w.]{{1,30}})?(?![\w])",
    )
    named = (
        "(?:[Vv]ersion|Python|Node|Postgres(?:QL)?|Java|Go|Ruby|PHP|Django|React|Ubuntu|Debian|Rust|Redis|macOS|iOS)"
    )
    yield _finder(LedgerKind.IDENTIFIER, rf"(?<!\w){named} v?\d{{1,5}}(?:\.\d{{1,6}}){{0,3}}\b")
    files = rf"[\w+-]{{1,80}}(?:\.[\w+-]{{1,40}}){{0,4}}\.(?:{_EXTENSIONS})(?::\d{{1,6}}){{0,2}}(?![\w@/(-])"
    folders = r"(?:[\w.@+-]{1,100}/){1,30}[\w.@+-]{0,100}(?::\d{1,6}){0,2}"
    yield _finder(LedgerKind.PATH, rf"(?<![\w/.@:%$\\-])(?:{folders})", _is_path)
    yield _finder(LedgerKind.PATH, rf"(?<![\w/.@:%$\\-])(?:{files})", _is_path, flags=re.IGNORECASE)
    yield _finder(
        LedgerKind.PATH,
        r"(?<![\w/.-])(?:Makefile|Dockerfile|\.(?:env|gitignore|dockerignore|bashrc|zshrc|npmrc"
        r"|editorconfig)(?:\.\w{1,20})?)(?![\w/])",
    )
    yield _finder(LedgerKind.IDENTIFIER, r"(?<!\w)0x[0-9a-fA-F]{2,64}(?!\w)")
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w+/=.-])(?:[0-9a-f]{7,128}|[0-9A-F]{7,128})(?![\w+/=-])", _is_code)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w+/=.-])[A-Z0-9]{5,24}(?![\w+/=-])", _is_code)
    yield _finder(LedgerKind.IDENTIFIER, r"(?<![\w.])[A-Za-z]{1,40}(?:_[A-Za-z0-9]{1,60}){1,8}(?![\w(])", _is_code)


def _quantities() -> Iterator[_Finder]:
    scale = r"(?:\s?(?:k|m|bn|million|billion|thousand|Mio\.?|Mrd\.?|万|亿)(?!\w))?"
    yield _finder(LedgerKind.NUMBER, rf"(?<![\w.,])[-+~≈]?(?:US|R|A|C)?[$€£¥₹₽]\s?{_AMOUNT}{scale}(?!\w)")
    yield _finder(LedgerKind.NUMBER, rf"(?<![\w.,/:])[-+±~≈]?{_AMOUNT}{scale}[ \u00a0-]?(?:{_UNITS})(?!\w|-\w)")
    yield _finder(
        LedgerKind.NUMBER, rf"(?<![\w.,/:])[-+]?{_AMOUNT}\s?(?:[万亿]?[元円人个個天年月秒件条字行]|小时|分钟|時間|分)"
    )


def _names() -> Iterator[_Finder]:
    symbol = r"[A-Za-z_][A-Za-z0-9]{0,60}"
    yield _name_finder(LedgerKind.IDENTIFIER, r"(?<!`)`(?P<fact>[^`\n]{2,120})`(?!`)", _is_named)
    yield _name_finder(
        LedgerKind.IDENTIFIER, rf"(?<![\w.@/-]){symbol}(?:[._]{symbol}){{1,8}}(?:\(\))?(?![\w@/])", _is_symbol
    )
    yield _name_finder(LedgerKind.IDENTIFIER, r"(?<![\w.])[A-Za-z_]\w{2,60}\(\)")
    yield _name_finder(LedgerKind.NUMBER, r"(?<![\w.,/:#-])\d{1,12}(?:[.,]\d{1,9}){0,4} [a-z]{3,20}s(?!\w)")


_FINDERS = tuple(_finders())
