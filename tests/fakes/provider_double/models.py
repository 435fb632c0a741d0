"""The models the double serves: the window and the way of counting are read from the name (`double-8k-cl100k`).

One whose name ends with `-thinks` requires its reasoning back with every step that calls tools, as DeepSeek does.
"""

import re
from dataclasses import dataclass

from fakes.provider_double.counting import COUNTINGS, Counting
from fakes.provider_double.refusals import Refused

NAMES = tuple(f"double-{window}-{counting}" for window in ("8k", "16k", "128k") for counting in sorted(COUNTINGS))
"""Those `/v1/models` lists; any other window works as well (`double-4k-bytes2`, `double-600-cl100k`)."""

_NAME = re.compile(r"double-(\d{1,7})(k?)-(\w+?)(-thinks)?")


@dataclass(frozen=True, slots=True)
class DoubleModel:
    """One model: its window in tokens, prompt and answer together, and how it counts."""

    name: str
    window_tokens: int
    counting: Counting
    thinks: bool = False


def find_model(name: str) -> DoubleModel:
    """Return the model of that name. Raises Refused (404) as OpenAI does for one it does not know."""
    model = look_up_model(name)
    if model is None:
        raise Refused(
            f"The model `{name}` does not exist or you do not have access to it.", status=404, code="model_not_found"
        )
    return model


def look_up_model(name: str) -> DoubleModel | None:
    """Return the model of that name, None for a name that says no window or no known way of counting."""
    match = _NAME.fullmatch(name)
    if match is None or match[3] not in COUNTINGS:
        return None
    window = int(match[1]) * (1024 if match[2] else 1)
    return DoubleModel(name, window, COUNTINGS[match[3]], thinks=bool(match[4]))
