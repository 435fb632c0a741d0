"""Delimiters for text that is data: a tag around it, which the text itself cannot close."""

import re
import unicodedata
from functools import cache

INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Characters, for a regular expression's character class, that readers and most models do not see."""

MARKS = r"\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
"""Characters, for a regular expression's character class, that decorate the letter before them."""

BLANK = r" \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""Characters, for a regular expression's character class, that are as empty as a space and end no line."""

LINE_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
LEFT_ANGLES = r"<\uff1c\ufe64\u2039\u3008\u2329\u27e8\u276e\u2770\u02c2\u1438\u227a\u00ab\u300a\u226a"
LEFT_BRACKETS = r"\[\uff3b\u3010\u3014\u3016\u3018\u301a\u27e6\u2045\u2772\ufe5d\u298b\uff62\u300c"
HASHES = r"#\uff03\ufe5f\u266f"
SLASHES = r"/\uff0f\u2044\u2215\u2571\u29f8"

_NO_LABEL = re.compile(r"[\x00-\x1f\x85\u2028\u2029\[\]\uff3b\uff3d]")
"""Characters that end a line, or the bracketed tag that contains a name."""

_ALIKE = {
    "_": "＿﹍﹎﹏‗-‐‑‒–— \t\n\r\u00a0",
    "a": "аɑα", "b": "ЬƄ", "c": "сϲ", "d": "ԁ", "e": "еҽё", "f": "ƒ", "g": "ɡց", "h": "һհ", "i": "іιıﺍ", "j": "јϳ",
    "k": "кκ", "l": "ӏІ|1", "m": "м", "n": "ոпη", "o": "оοօ0", "p": "рρ", "q": "ԛ", "r": "гᴦ", "s": "ѕ", "t": "тτ",
    "u": "υս", "v": "νѵ", "w": "ԝω", "x": "хχ", "y": "уүγ", "z": "ᴢ",
}  # fmt: skip
_ACCENTED = (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))
_RAISED = (*range(0x2B0, 0x2B9), *range(0x1D2C, 0x1D6B), *range(0x1D9B, 0x1DC0), *range(0x2070, 0x20A0), 0x2C7C)
_MATHEMATICAL = (*range(0xFF21, 0xFF5B), *range(0x1D400, 0x1D7CC), *range(0x24B6, 0x24EA), *range(0x2100, 0x2180))


def as_label(name: str) -> str:
    """Return a name without characters that would end its line or the square brackets around it."""
    return _NO_LABEL.sub("_", name)


def word_alike(word: str) -> str:
    """Return a regular expression, for `re.IGNORECASE`, that finds `word` also in similar letters of other scripts.

    It finds the word with accents and other decorations, too, and with blanks or nothing for each underscore.
    """
    return rf"[{INVISIBLE}{MARKS}]*+".join(_letter(letter) for letter in word.casefold())


def _letter(letter: str) -> str:
    alike = f"[{re.escape(letter + _ALIKE.get(letter, '') + _styled().get(letter, ''))}]"
    return f"{alike}*+" if letter == "_" else alike


@cache
def _styled() -> dict[str, str]:
    """Return the bold, italic, wide, circled, raised and accented forms of each letter."""
    found: dict[str, str] = {}
    for code in (*_ACCENTED, *_RAISED, *_MATHEMATICAL):
        letters = unicodedata.normalize("NFKD", chr(code)).casefold()
        if all(map(unicodedata.combining, letters[1:])):
            found[letters[0]] = found.get(letters[0], "") + chr(code)
    return found


def delimited(tag: str, text: str) -> str:
    """Return `text` between `<tag>` and `</tag>`, with every such tag inside it escaped."""
    return f"<{tag}>\n{escaped(tag, text)}\n</{tag}>"


def undelimited(tag: str, text: str) -> str:
    """Return the text between `<tag>` and the last `</tag>` of `text`; '' without such tags."""
    _, _, inside = text.partition(f"<{tag}>\n")
    return inside.rpartition(f"\n</{tag}>")[0]


def escaped(tag: str, text: str) -> str:
    """Return `text` with the angle bracket of every opening or closing `tag` in it written as `&lt;`.

    Imitations are escaped, too: tags with invisible or decorating characters, other brackets, or similar letters of
    other scripts.
    """
    return _tag_pattern(tag).sub(r"&lt;\1", text)


@cache
def _tag_pattern(tag: str) -> re.Pattern[str]:
    gap = rf"[\s{INVISIBLE}{MARKS}]*+"
    return re.compile(rf"[{LEFT_ANGLES}]({gap}(?:[{SLASHES}]{gap})?+{word_alike(tag)})", re.IGNORECASE)
