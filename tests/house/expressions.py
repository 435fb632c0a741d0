"""Every regular expression the project compiles, as the check of their cost finds them."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import throughline
from throughline.llm.classify_error import known_answers

FACTORY_ARGUMENT = "tag"
"""What a function that makes an expression of a word is given; none of them looks at it."""

CONTAINERS = (tuple, list, set, frozenset)


def expressions() -> dict[str, re.Pattern[str]]:
    """Return the expressions of all modules of `throughline` under the names by which they are found, each once."""
    in_a_file = _inside("throughline.llm.classify_error.known_answers()", known_answers())
    names: dict[re.Pattern[str], str] = {pattern: path for path, pattern in in_a_file}
    for module in _modules():
        for name, value in vars(importlib.import_module(module)).items():
            for path, pattern in _inside(f"{module}.{name}", value):
                names.setdefault(pattern, path)
    return {path: pattern for pattern, path in names.items()}


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(throughline.__path__, "throughline."):
        if not module.name.endswith("__main__"):
            yield module.name


def _inside(path: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the expressions in a value: itself, in containers and fields, or what a factory makes."""
    if isinstance(value, re.Pattern):
        yield path, value
    elif _makes_expression(value):
        factory = cast("Callable[..., re.Pattern[str]]", value)
        yield f"{path}()", factory(*([FACTORY_ARGUMENT] * len(inspect.signature(factory).parameters)))
    else:
        for name, inner in _parts(value):
            yield from _inside(f"{path}{name}", inner)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, CONTAINERS):
        yield from ((f"[{index}]", inner) for index, inner in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))


def _makes_expression(value: object) -> bool:
    """Whether it is one of our functions that keep the expressions they make."""
    module = getattr(value, "__module__", None) or ""
    makes = getattr(value, "__annotations__", {}).get("return")
    return hasattr(value, "cache_info") and module.startswith("throughline.") and makes == re.Pattern[str]
