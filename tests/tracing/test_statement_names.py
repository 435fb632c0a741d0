"""Names of statements: what they do and to which table, for every statement of the service."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import throughline.db
from throughline.db.connection.pool import BEGIN_LIMITED, Statement
from throughline.tracing.attributes import summarize_statement


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("select id from runs where id = $1", "SELECT runs"),
        ("select 1", "SELECT"),
        ("select id from runs for update of runs", "SELECT runs"),
        ("with late as materialized (select 1 from jobs) select * from late join runs on true", "SELECT jobs"),
        ("with late(id) as (select unnest($1)) select * from late join runs on true", "SELECT runs"),
        ("insert into runs (id) values ($1) on conflict (id) do update set id = excluded.id", "INSERT runs"),
        ("update runs r set worker = null; delete from jobs", "UPDATE runs, DELETE jobs"),
        ("select extract(epoch from now()) from processes", "SELECT processes"),
        (BEGIN_LIMITED, "BEGIN"),
        ("commit", "COMMIT"),
        ("", "UNKNOWN"),
    ],
)
def test_a_statement_is_named_by_what_it_does(sql: str, name: str) -> None:
    assert summarize_statement(sql).name == name
    assert summarize_statement(sql).operation == name.split(maxsplit=1)[0].rstrip(",")


def test_every_statement_of_the_service_has_a_short_name() -> None:
    names = [summarize_statement(statement.text).name for statement in _statements()]

    assert len(names) > 200
    assert max(map(len, names)) < 100
    assert {name.split()[0] for name in names} == {"SELECT", "INSERT", "UPDATE", "DELETE", "SET"}
    assert "SELECT created_at" not in names


def _statements() -> Iterator[Statement]:
    for module in pkgutil.walk_packages(throughline.db.__path__, "throughline.db."):
        for value in vars(importlib.import_module(module.name)).values():
            yield from (one for one in (value.values() if isinstance(value, dict) else [value]) if _is_one(one))


def _is_one(value: object) -> bool:
    return isinstance(value, Statement)
