"""The positions a summary cites, like `[#12-#40]`: those that were never read are taken out."""

import re
from collections.abc import Collection
from functools import partial

POSITION_DIGITS = 9
"""No session has a position with more digits."""

_CITATION = re.compile(r"(?P<before>[^\S\n]?+)\[(?P<places>#\d[\d\s,;#–—-]*+)\]")
_PLACE = re.compile(r"#?(\d++)(?:\s*+[–—-]\s*+#?(\d++))?+")


def without_invented(text: str, reach: tuple[int, int], *read: str) -> str:
    """Return `text` without citations of positions outside `reach`, first to last, both included, or backwards.

    What is left stays as it is: a summary without a citation is still one, and models that count from 1 in each part
    write good ones. A citation that stands so in what was read is a quotation and stays.
    """
    quoted = {match["places"] for source in read for match in _CITATION.finditer(source)}
    return _CITATION.sub(partial(_real_part, reach, quoted), text)


def _real_part(reach: tuple[int, int], quoted: Collection[str], citation: re.Match[str]) -> str:
    places = citation["places"]
    found = list(_PLACE.finditer(places))
    real = [place.group().strip() for place in found if _is_real(place, reach)]
    if places in quoted or len(real) == len(found):
        return citation.group()
    return f"{citation['before']}[{', '.join(real)}]" if real else ""


def _is_real(place: re.Match[str], reach: tuple[int, int]) -> bool:
    first, last = place[1], place[2] or place[1]
    if max(len(first), len(last)) > POSITION_DIGITS:
        return False
    return reach[0] <= int(first) <= int(last) <= reach[1]
