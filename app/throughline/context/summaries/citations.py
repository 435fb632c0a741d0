"""Citations of positions in a summary, like `[#12-#40]`: removal of positions that the model never read."""

import re
from collections.abc import Collection
from functools import partial

from throughline.context.citation_form import LOOSE_BRACKET, LOOSE_PLACE, MARKED_NUMBER, POSITION_DIGITS


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
