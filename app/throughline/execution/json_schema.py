"""JSON schemas of requested answers: the check of a schema, and of an answer against it.

Schemas come from clients, so their checks must end. What `check_schema` reads is small. Answers are checked in another
process, within limits of time and memory.
"""

import json
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

import structlog
from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.message import REPLACEMENT, clean_text
from throughline.execution import check_answer
from throughline.execution.check_answer import CPU_SECONDS, MEMORY_BYTES, PATTERNS, describe

log = structlog.get_logger(__name__)

MAX_SCHEMA_BYTES = 20_000
MAX_LEVELS = 60
"""Most levels of lists and objects in a schema. A request over REST has at most 64, four of them around the schema."""

MAX_PATTERNS = 20
MAX_ERROR_CHARACTERS = 500
WALL_SECONDS = 30.0
"""Time after which a checker that uses no CPU, such as a stopped one, is given up."""

TRIES = 2
"""Checks of one answer: a checker that something else has killed says nothing of the schema."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KNOWN_KEYWORDS = Draft202012Validator(
    {"$id": "urn:known-keywords", "$dynamicAnchor": "meta", "$ref": DIALECT, "unevaluatedProperties": False},
    offline=True,
)
"""The schema of schemas that have no keyword of another dialect, which a check would ignore."""

SCHEMAS = Draft202012Validator({"$ref": DIALECT}, offline=True)
"""The schema of schemas."""


class SchemaInvalid(ValueError):
    """Raised for a schema that cannot be used; the text says where, what, and what to do."""


def schema_misfit(schema: JsonObject) -> str:
    """Return why `schema` is no JSON schema of the dialect 2020-12, '' if it is one. Unknown keywords are allowed."""
    error = next(SCHEMAS.iter_errors(dict(schema)), None)
    return "" if error is None else _one_line(describe(error))


def check_schema(schema: JsonObject) -> None:
    """Raise SchemaInvalid unless answers can be checked against `schema`."""
    if is_too_deep(schema):
        raise SchemaInvalid(f"is nested more than {MAX_LEVELS} levels deep; remove some levels")
    patterns = {text for level in _levels(schema) for node in level for text in _patterns(node)}
    if len(patterns) > MAX_PATTERNS:
        raise SchemaInvalid(f"has {len(patterns)} different patterns; at most {MAX_PATTERNS} are allowed")
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except ValueError as error:
        raise SchemaInvalid("has NaN, an infinite number or half of a surrogate pair; remove it") from error
    if size > MAX_SCHEMA_BYTES:
        raise SchemaInvalid(f"has {size} bytes as JSON; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        Draft202012Validator(dict(schema), pattern_options=PATTERNS, offline=True)
    except ValidationError as error:
        raise SchemaInvalid(f"cannot be used: {_one_line(describe(error))}{_remedy(error)}") from error
    unknown = max(KNOWN_KEYWORDS.iter_errors(dict(schema)), key=lambda error: len(error.instance_path), default=None)
    if unknown is not None:
        raise SchemaInvalid(f"has a keyword that JSON Schema 2020-12 does not have: {_one_line(describe(unknown))}")


def find_misfit(schema: JsonObject, text: str) -> str:
    """Return why `text` is no JSON that fits `schema`, '' if it is. The schema has passed `check_schema`.

    Takes milliseconds, but seconds for hostile schemas: call it in a thread.
    """
    question = json.dumps({"schema": schema, "text": text})
    for _ in range(TRIES):
        checker: _Checker | None = getattr(_checkers, "of_thread", None)
        if checker is None or checker.has_ended:
            checker = _checkers.of_thread = _Checker()
        answer = checker.ask(question)
        if answer.endswith("\n"):
            return _one_line(json.loads(answer))
        log.warning("check of an answer ended its process", status=checker.status())
        del _checkers.of_thread
        if not checker.was_killed:
            break
    return (
        f"checking it takes more than {CPU_SECONDS} s or {MEMORY_BYTES // 1_000_000} MB: simplify the schema, or ask "
        "for less"
    )


class _Checker:
    """A running `check_answer.py`. It ends at the end of its input, or by the kernel at a check beyond its limits."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-I", check_answer.__file__],
            env={},  # what it reads is hostile: it gets no secrets
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what a terminal sends does not end it
            text=True,
        )
        self._is_given_up = False
        weakref.finalize(self, _end, self._process)

    @property
    def has_ended(self) -> bool:
        """Whether something else than a check has ended it, such as an operator or a system without memory."""
        return self._process.poll() is not None

    def ask(self, question: str) -> str:
        """Return the line that answers the question, '' if the process has ended."""
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(question, file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], WALL_SECONDS)[0]:
            self._is_given_up = True
            self._process.kill()
        return self._process.stdout.readline()

    @property
    def was_killed(self) -> bool:
        """Whether something else than its limits has ended it."""
        return self.status() == -signal.SIGKILL and not self._is_given_up

    def status(self) -> int:
        """Return the exit status of a process that has ended, or minus the signal that ended it."""
        return self._process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with suppress(BrokenPipeError), process:  # closes its pipes and waits for it
        pass


_checkers = threading.local()
"""Each thread has a process of its own, from its first check on."""


def is_too_deep(schema: JsonObject) -> bool:
    """Return whether the schema has more than MAX_LEVELS levels of lists and objects."""
    return sum(1 for _ in _levels(schema)) > MAX_LEVELS


def _levels(schema: JsonObject) -> Iterator[Sequence[JsonObject]]:
    """Yield the objects of each level of lists and objects, of at most MAX_LEVELS + 1 levels."""
    level: list[JsonValue] = [dict(schema)]
    for _ in range(MAX_LEVELS + 1):
        objects = [value for value in level if isinstance(value, dict)]
        lists = [value for value in level if isinstance(value, list)]
        if not objects and not lists:
            return
        yield objects
        level = [*chain.from_iterable(item.values() for item in objects), *chain.from_iterable(lists)]


def _patterns(node: JsonObject) -> Iterator[str]:
    if isinstance(pattern := node.get("pattern"), str):
        yield pattern
    if isinstance(patterns := node.get("patternProperties"), dict):
        yield from patterns


def _remedy(error: ValidationError) -> str:
    match error.kind:
        case ValidationErrorKind.Referencing():
            return "; a $ref names a schema in the same schema, such as #/$defs/name"
        case ValidationErrorKind.Format():
            return "; a pattern is small and has no look-around and no back references"
        case _:
            return ""


def _one_line(text: str) -> str:
    """Return `text` as a line that the database can store, without its middle if it is long: both ends tell most."""
    half = MAX_ERROR_CHARACTERS // 2
    text = text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:half]} … {text[-half:]}"
    return clean_text("".join(character if character.isprintable() else REPLACEMENT for character in text))
