"""What of a user's message was pasted into it: code, quoted lines, blocks between tags, and a text that is announced.

It orders nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_OPENING_TAG = re.compile(r"<([A-Za-z][\w-]{0,60})(?: [^<>]{0,300})?>")
_INDENTED = re.compile(r"(?: {4}|\t)\s{0,20}(?![\s*+•-]|\d{1,2}[.)])")
_WORK = (
    r"(?:fix|translate|summari[sz]e|proofread|rewrite|rephrase|correct|improve|polish|shorten|edit"
    r"|übersetze|korrigiere|verbessere"
    r"|fasse|kürze|traduis|traduisez|corrige|corrigez|résume|traduce|resume|traduci|correggi|riassumi"
    r"|traduza|corrija|resuma"
    r"|переведи|исправь)"
)
_TEXT = (
    r"(?:readme|e-?mail|mail|text|texte|texto|testo|document|article|essay|letter|message|paragraph|post"
    r"|transcript|log|notes"
    r"|draft|story|poem|contract|prompt|passage|brief|nachricht|artikel|lettre|carta|correo|lettera|текст|письмо)"
)
_ANNOUNCED = re.compile(
    rf"^(?:[^\s.:!?]{{1,20}}[ ]){{0,3}}{_WORK}(?:[ ][^\s.:!?]{{1,20}}){{0,8}}:"
    rf"|^(?:[^\s.:!?]{{1,20}}[ ]){{0,2}}(?:here(?:'s|[ ]is|[ ]are)|this[ ]is|below[ ]is|hier[ ]ist|voici"
    rf"|aquí[ ]está|ecco|вот)"
    rf"(?:[ ][^\s.:!?]{{1,20}}){{0,4}}[ ]{_TEXT}(?:[ ][^\s.:!?]{{1,20}}){{0,6}}:[ \t]*$"
    r"|^[^\n。]{0,20}(?:翻译|翻譯|润色|修改|总结)[^\n。：:]{0,20}[：:]",
    re.IGNORECASE | re.MULTILINE,
)
"""The rest of such a message is a text to be worked on."""

_FENCES = ("```", "~~~")
_QUOTE_MARKS = (">", "|")


def without_pasted_blocks(text: str) -> str:
    """Blank out code, quoted lines and blocks between tags on lines of their own, and end where a text is announced.

    What is left keeps its place.
    """
    announced = _ANNOUNCED.search(text)
    if announced:
        text = text[: announced.end()]
    lines = text.splitlines(keepends=True)
    reading = _Reading(_closing_tags(lines))
    return "".join("\n" * len(line) if reading.is_pasted(at, line) else line for at, line in enumerate(lines))


def _closing_tags(lines: Sequence[str]) -> dict[str, int]:
    """Return the last line of each closing tag that stands alone."""
    return {line.strip(): at for at, line in enumerate(lines) if line.lstrip().startswith("</")}


@dataclass(slots=True)
class _Reading:
    """Reads a text line by line. `fence` is what closes the code block that is open, '' where none is."""

    closing_tags: Mapping[str, int]
    fence: str = ""
    tags_close_at: int = -1
    was_blank: bool = True

    def is_pasted(self, at: int, line: str) -> bool:
        """Tell of the next line, which is number `at`."""
        bare = line.strip()
        is_tagged = self._is_tagged(at, bare)
        is_code = self._is_fenced(bare) or (self.was_blank and _INDENTED.match(line) is not None)
        is_pasted = is_tagged or is_code or bare.startswith(_QUOTE_MARKS)
        self.was_blank = not bare or is_pasted
        return is_pasted

    def _is_tagged(self, at: int, bare: str) -> bool:
        tag = None if self.fence else _OPENING_TAG.fullmatch(bare)
        if tag:
            self.tags_close_at = max(self.tags_close_at, self.closing_tags.get(f"</{tag[1]}>", -1))
        return at <= self.tags_close_at

    def _is_fenced(self, bare: str) -> bool:
        marker = bare[:3] if bare.startswith(_FENCES) else ""
        is_fenced = bool(self.fence or marker)
        if marker and self.fence in {"", marker}:
            self.fence = "" if self.fence else marker
        return is_fenced
