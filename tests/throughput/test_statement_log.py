"""Statements and transactions are counted in the server's log as pg_stat_statements and pg_stat_database would."""

from pathlib import Path

import pytest

from benchmarks.figures import connected
from benchmarks.statement_log import count_statements, run_logged_postgres

IN_A_TRANSACTION = b"""\
7 LOG:  statement: BEGIN ISOLATION LEVEL READ COMMITTED;
7 LOG:  execute __asyncpg_stmt_1__: insert into runs (id)
\tvalues ($1)
9 LOG:  execute <unnamed>: select 1
7 LOG:  statement: COMMIT;
"""


def test_a_transaction_counts_once_and_each_of_its_statements() -> None:
    assert count_statements(IN_A_TRANSACTION) == (4, 2)


def test_whoever_measures_does_not_count() -> None:
    assert count_statements(IN_A_TRANSACTION, ignored_pid=9) == (3, 1)


def test_what_is_rolled_back_is_no_commit_but_a_savepoint_is_left_by_going_on() -> None:
    begun = b"7 LOG:  statement: BEGIN;\n7 LOG:  statement: SAVEPOINT a;\n7 LOG:  statement: ROLLBACK TO a;\n"

    assert count_statements(begun + b"7 LOG:  statement: ROLLBACK;\n") == (4, 0)
    assert count_statements(begun + b"7 LOG:  statement: COMMIT;\n") == (4, 1)


def test_other_lines_are_passed_over() -> None:
    assert count_statements(b"1 LOG:  received SIGHUP, reloading configuration files\n\tselect 1\n7 ERROR:  no\n") == (
        0,
        0,
    )


@pytest.mark.slow
async def test_a_server_counts_what_a_client_executes(folder: Path) -> None:
    async with run_logged_postgres(folder) as (url, log), connected(url) as connection:
        await connection.fetchval("select 1")
        async with log.on() as logged, connection.transaction():
            await connection.fetchval("select $1::int", 2)

    assert (logged.statements, logged.transactions) == (3, 1)
