"""The check of answers against JSON schemas, a program of its own that `json_schema.py` runs.

A check holds the interpreter until it ends, and schemas can be written for which that takes hours or all memory. So the
kernel limits this process, and what it is asked in vain ends it.
"""

import json
import math
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

CPU_SECONDS = 2
MEMORY_BYTES = 512_000_000

PATTERNS = RegexOptions(size_limit=1_000_000)
"""Patterns are matched in linear time, without look-around and back references. Bytes of a compiled one."""


def find_misfit(schema: Mapping[str, Any], text: str) -> str:
    """Return why `text` is no JSON that fits `schema`, '' if it is."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        validator = Draft202012Validator(dict(schema), pattern_options=PATTERNS, offline=True)
        fits = validator.is_valid(value)  # many times faster than finding errors
        return "" if fits else describe(next(validator.iter_errors(value)))
    except json.JSONDecodeError as error:
        return f"it is not JSON alone: {error.msg} at character {error.pos}"
    except (RecursionError, ValueError) as error:
        return _unreadable(error)


def _unreadable(error: Exception) -> str:
    """Return why a value cannot be read, from an error of Python or jsonschema-rs, which knows 255 levels."""
    match str(error):
        case text if "ecursion" in text:
            return "it is nested too deeply"
        case text if "surrogate" in text:
            return "it has half of a surrogate pair, which is no character"
        case _:
            return "it has a number that JSON does not know, or one of too many digits"


def describe(error: ValidationError) -> str:
    """Return the error with its place. Of schemas that were tried, the one that fits best tells."""
    while tried := [found for errors in getattr(error.kind, "context", ()) for found in errors]:
        error = max(tried, key=lambda found: len(found.instance_path))
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return f"${path}: {error.message}" if path else error.message


def _refuse(number: str) -> NoReturn:
    raise ValueError(number)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def _limit(kind: int, amount: int) -> None:
    """Set a limit of this process, but none above what its environment allows."""
    most = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (amount if most == resource.RLIM_INFINITY else min(amount, most), most))


def main() -> None:
    """Answer each line of the input, arguments of `find_misfit` as JSON, with a line, its result as JSON."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # a system without memory ends this process first
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + CPU_SECONDS)  # the kernel counts whole seconds
        sys.stdout.write(json.dumps(find_misfit(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
