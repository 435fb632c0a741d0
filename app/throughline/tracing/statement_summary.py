"""Short names of database statements, made of their kind and their tables: `INSERT messages, UPDATE runs`.

The names of spans are made here, so that no text of a statement and no parameter leaves the process.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

MOST_TARGETS = 3
"""Tables that one name lists."""

KNOWN_STATEMENTS = 1_000
"""Statements whose names are kept; the service has fewer."""

_WRITE = re.compile(r"\b(insert into|(?<!for )(?<!key )(?<!do )update|delete from)\s+([a-z_]+)")
_READ = re.compile(r"(?<!epoch )\b(?:from|join)\s+([a-z_]+)\b(?!\s*\()")
_NAMED_QUERY = re.compile(r"\b([a-z_]+)(?: ?\([a-z_, ]+\))? as (?:not )?(?:materialized )?\(")
_FIRST_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class StatementSummary:
    """The operation of a statement (`SELECT`, `INSERT`, …), and its name with the tables."""

    operation: str
    name: str


@lru_cache(maxsize=KNOWN_STATEMENTS)
def summarize_statement(sql: str) -> StatementSummary:
    """Return the summary of a statement: its writes, or else the first table that it reads."""
    text = sql.lower()
    writes = dict.fromkeys((verb.split()[0].upper(), table) for verb, table in _WRITE.findall(text))
    if writes:
        listed = [f"{verb} {table}" for verb, table in writes][:MOST_TARGETS]
        return StatementSummary(next(iter(writes))[0], ", ".join(listed))
    word = _FIRST_WORD.search(text)
    operation = word.group().upper() if word else "UNKNOWN"
    if operation not in {"SELECT", "WITH"}:
        return StatementSummary(operation, operation)
    named = set(_NAMED_QUERY.findall(text))
    table = next((name for name in _READ.findall(text) if name not in named), "")
    return StatementSummary("SELECT", f"SELECT {table}".rstrip())
