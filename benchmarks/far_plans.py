"""The plans of all statements of the service, for `benchmarks.far`: those that depend on the size of the database.

A statement is looked at by the plan that a connection keeps, which knows no parameters.
"""

import dataclasses
import importlib
import itertools
import json
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

import asyncpg  # type: ignore[import-untyped]  # ships no types

import throughline.db
import throughline.slack.store
from fakes.raw_sql import nodes_of
from throughline.db.connection.pool import Statement
from throughline.domain.basic_types import JsonObject

PACKAGES = (throughline.db, throughline.slack.store)
PLANNED = ("select", "with", "insert", "update", "delete")
MOST_PARTITIONS = 3
"""Partitions that a statement reads which knows the time: two, and the default one."""

LARGE_ROWS = 50_000
"""Rows of a table of which a statement should not read all."""

GROWTH, SMALL_COST = 4.0, 100.0
"""A statement is listed if its cost grows so many times. Up to the small cost, a deeper tree explains it."""

_TABLES = """
    select c.relname, coalesce(p.relname, c.relname) as parent, c.reltuples, p.oid is not null as is_partition
    from pg_class c left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
    where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
"""
_PARTIAL = "select indexrelid::regclass::text from pg_index where indpred is not null"
_SETTINGS = "set plan_cache_mode = force_generic_plan; set jit = off; set max_parallel_workers_per_gather = 0"


def all_statements() -> Mapping[str, Statement]:
    """Return the statements with a plan that modules of the service hold, by their modules and names."""
    found: dict[str, tuple[str, Statement]] = {}
    for info in itertools.chain(*(pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in PACKAGES)):
        for name, value in vars(importlib.import_module(info.name)).items():
            for one in _statements_in(value):
                found.setdefault(one.text, (f"{info.name.removeprefix('throughline.')}.{name} {len(found)}", one))
    return {name: one for name, one in found.values() if one.text.split(maxsplit=1)[0].lower() in PLANNED}


def _statements_in(value: object) -> Iterator[Statement]:
    """Yield the statements in a value: itself, or in a mapping, a sequence or a dataclass."""
    if isinstance(value, Statement):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _statements_in(one)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _statements_in(getattr(value, field.name, None))


async def find_plans(small: asyncpg.Connection, large: asyncpg.Connection) -> list[Sequence[str]]:
    """Return the lines of the table, the headings first: statements whose plan depends on the size, dearest first."""
    tables = {row["relname"]: row for row in await large.fetch(_TABLES)}
    partial = {row[0] for row in await large.fetch(_PARTIAL)}
    lines = []
    for connection in (small, large):
        await connection.execute(_SETTINGS)
    for name, statement in all_statements().items():
        with suppress(asyncpg.UndefinedTableError):  # it is made for the first embedding
            before, after = await _plan(small, statement), await _plan(large, statement)
            was, cost = float(str(before["Total Cost"])), float(str(after["Total Cost"]))
            whole, partitions = _read_whole(after, tables, partial), _partitions(after, tables)
            if whole or partitions or (cost > SMALL_COST and cost > GROWTH * was):
                lines.append((cost, (name, f"{was:,.0f}", f"{cost:,.0f}", whole or "none", partitions or "few")))
    headings = ("statement", "cost, small", "cost, large", "large tables read whole", "partitions read")
    return [headings, *(line for _, line in sorted(lines, reverse=True))]


async def _plan(connection: asyncpg.Connection, statement: Statement) -> JsonObject:
    values = f"({', '.join(['null'] * len(statement.names))})" if statement.names else ""
    await connection.execute(f"prepare far as {statement.text}")
    plan = json.loads(await connection.fetchval(f"explain (format json) execute far{values}"))[0]["Plan"]
    await connection.execute("deallocate far")
    return cast("JsonObject", plan)


def _read_whole(plan: JsonObject, tables: Mapping[str, asyncpg.Record], partial: set[str]) -> str:
    """Return the large tables of which all rows may be read: neither a condition nor a partial index chooses them."""
    found = {
        str(tables[table]["parent"])
        for node in nodes_of(plan)
        if (table := str(node.get("Relation Name"))) in tables and tables[table]["reltuples"] >= LARGE_ROWS
        if node["Node Type"] == "Seq Scan"
        or (node.get("Index Name", "") not in {"", *partial} and "Index Cond" not in node)
    }
    return ", ".join(sorted(found))


def _partitions(plan: JsonObject, tables: Mapping[str, asyncpg.Record]) -> str:
    """Return the numbers of partitions that are read of a table, if there are many."""
    names = {str(node.get("Relation Name")) for node in nodes_of(plan)}
    counts = Counter(tables[name]["parent"] for name in names if name in tables and tables[name]["is_partition"])
    return ", ".join(f"{count} of {parent}" for parent, count in counts.items() if count > MOST_PARTITIONS)
