"""The made parts of a page: what stands between the two comments of a name."""

import re
from collections.abc import Mapping

PART = re.compile(r"<!-- made by `make reference`: (?P<name>[a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)
FORM = "<!-- made by `make reference`: {name} -->\n\n{text}\n\n<!-- end -->"


def replace_parts(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with the text of each part replaced.

    Raises ValueError if the page lacks a part, has one twice, or has one that nothing makes.
    """
    found = [match["name"] for match in PART.finditer(page)]
    if sorted(found) != sorted(parts):
        raise ValueError(f"the page has the parts {sorted(found)}; made are {sorted(parts)}")
    return PART.sub(lambda match: FORM.format(name=match["name"], text=parts[match["name"]].strip("\n")), page)
