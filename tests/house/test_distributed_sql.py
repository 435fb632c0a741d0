"""No SQL of ours uses what YugabyteDB 2025.2 lacks, which speaks the SQL of PostgreSQL 15, but for named exceptions.

All text in the code of the database is looked through, so that statements that are put together while the service runs
count, too. docs/operations/distributed.md says what the exceptions mean there.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from house.tree import ROOT, name_of, python_files, syntax_tree

PLACES = ("app/throughline/db/", "app/throughline/slack/store/", "alembic/versions/")
ABSENT = {
    "system columns": r"\b(?:ctid|xmin|xmax|cmin|cmax)\b",
    "transaction ids": r"\btxid_\w+|\bpg_current_xact_id\b|\bpg_snapshot\b",
    "indexes of other kinds": r"\busing\s+(?:brin|gist|spgist)\b|^(?:brin|gist|spgist)$",
    "unlogged tables": r"\bunlogged\b",
    "storage parameters": r"\bautovacuum_\w+|\bfillfactor\b|\btoast\.",
    "notifications": r"\bpg_notify\b|^\s*(?:un)?listen\b|^\s*notify\b",
    "advisory locks": r"\bpg_(?:try_)?advisory_\w+",
    "locks of tables": r"\block\s+table\b",
    "deferrable constraints": r"\bdeferrable\b",
    "exclusion constraints": r"\bexclude\s+using\b",
    "inheritance": r"\binherits\b|\btableoid\b",
    "triggers of other kinds": r"\bconstraint\s+trigger\b|\breferencing\s+(?:old|new)\s+table\b|%type\b",
    "prepared transactions": r"\bprepare\s+transaction\b",
    "merge": r"\bmerge\s+into\b",
    "XML": r"\bxpath\b|\bxmlparse\b|\bxmlelement\b",
    "PostgreSQL 16": r"\bany_value\b|\bjson_(?:array|object)agg\b|\bis\s+json\b|\bpg_input_\w+|\bsystem_user\b"
    r"|\barray_(?:sample|shuffle)\b|\brandom_normal\b|\bdate_(?:add|subtract)\b",
    "PostgreSQL 17": r"\bjson_(?:table|query|value|exists|scalar|serialize)\b|\bmerge_action\b|\btransaction_timeout\b"
    r"|\buuid_extract_\w+",
    "PostgreSQL 18": r"\buuidv[47]\b|\breturning\s+(?:old|new)\.|\barray_(?:reverse|sort)\b|\bwithout\s+overlaps\b"
    r"|\bnot\s+enforced\b|\bcasefold\b|\bcrc32c?\b",
}
"""What is absent, and the words by which it is found."""

BASELINE = "alembic/versions/0047_schema.py"
BY_DAY, BY_MONTH = "alembic/versions/0048_run_events_by_day.py", "alembic/versions/0049_model_calls_by_month.py"
NO_TRIGGER = "alembic/versions/0050_no_trigger_of_jobs.py"
EXCEPTIONS = {
    ("unlogged tables", BASELINE): "the word is ignored there, with a notice",
    ("unlogged tables", "app/throughline/db/tables/partitions.py"): "the word is ignored there, with a notice",
    ("unlogged tables", "app/throughline/db/tables/processes.py"): "the word is ignored there, with a notice",
    ("storage parameters", BASELINE): "refused there: the schema is made without them",
    ("storage parameters", BY_DAY): "refused there: the schema is made without them",
    ("storage parameters", "app/throughline/db/tables/columns.py"): "refused there: the schema is made without them",
    ("indexes of other kinds", BASELINE): "made and dropped by released revisions, in an empty schema",
    ("indexes of other kinds", BY_MONTH): "dropped by this revision",
    ("notifications", "app/throughline/db/connection/notifier.py"): "sent only with DATABASE_LISTEN",
    ("notifications", "app/throughline/db/connection/pooler.py"): "a check only with DATABASE_LISTEN",
    ("notifications", BASELINE): "made and dropped by released revisions, in an empty schema",
    ("notifications", NO_TRIGGER): "made again only by a downgrade",
    (
        "locks of tables",
        "app/throughline/db/attach_partition.py",
    ): "without them all rows stay in the default partitions",
    ("PostgreSQL 17", "app/throughline/db/attach_partition.py"): "set only if the server's version has it",
    ("locks of tables", "app/throughline/db/partitions.py"): "without them all rows stay in the default partitions",
    ("locks of tables", "app/throughline/db/tables/move_to_partitions.py"): "an empty schema has nothing to move",
    ("PostgreSQL 17", "app/throughline/db/connection/pool.py"): "set only if the server's version has it",
}
"""The reasons for which a file has what is absent, by both."""


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is not a docstring, also of those in an f-string."""
    explained = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explained:
            yield node.lineno, node.value


def uses(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each use of what is absent, and its line."""
    for line, text in texts(syntax_tree(path)):
        for absent, words in ABSENT.items():
            if re.search(words, text, re.IGNORECASE | re.MULTILINE):
                yield absent, line


def files() -> list[Path]:
    return [path for path in python_files("app", "alembic") if name_of(path).startswith(PLACES)]


def test_no_statement_uses_what_a_distributed_engine_does_not_have() -> None:
    found = [
        f"{name_of(path)}:{line}: {absent}"
        for path in files()
        for absent, line in uses(path)
        if (absent, name_of(path)) not in EXCEPTIONS
    ]

    assert found == []


def test_every_exception_is_needed() -> None:
    used = {(absent, name_of(path)) for path in files() for absent, _ in uses(path)}

    assert EXCEPTIONS.keys() - used == set()


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("delete from jobs where ctid = any(array(select ctid from free))", "system columns"),
        ("select pg_try_advisory_lock(1)", "advisory locks"),
        ("create index on model_calls using brin (created_at)", "indexes of other kinds"),
        ("notify throughline", "notifications"),
        ("update runs set attempt = 1 returning old.attempt", "PostgreSQL 18"),
    ],
)
def test_a_statement_is_found_by_its_words(statement: str, absent: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f"STATEMENT = {statement!r}\n")

    assert list(uses(tmp_path / "module.py")) == [(absent, 1)]


def test_the_places_of_statements_exist() -> None:
    assert all((ROOT / place).is_dir() for place in PLACES)
