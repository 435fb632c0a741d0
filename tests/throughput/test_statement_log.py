"""Statements and transactions are counted in the server's log as pg_stat_statements and pg_stat_database would."""

from pathlib import Path

import pytest

from benchmarks.figures import connected
from benchmarks.statement_log import StatementCounter, run_logged_postgres

IN_A_TRANSACTION = b"""\
7 LOG:  statement: BEGIN ISOLATION LEVEL READ COMMITTED;
7 LOG:  execute __asyncpg_stmt_1__: insert into runs (id)
\tvalues ($1)
9 LOG:  execute <unnamed>: select 1
7 LOG:  statement: COMMIT;
"""


def counted(log: bytes, *, ignored_pid: int = 0) -> tuple[int, int]:
    counter = StatementCounter(ignored_pid)
    counter.feed(log)
    return counter.statements, counter.transactions


def test_a_transaction_counts_once_and_each_of_its_statements() -> None:
    assert counted(IN_A_TRANSACTION) == (4, 2)


def test_whoever_measures_does_not_count() -> None:
    assert counted(IN_A_TRANSACTION, ignored_pid=9) == (3, 1)


def test_what_is_rolled_back_is_no_commit_but_a_savepoint_is_left_by_going_on() -> None:
    begun = b"7 LOG:  statement: BEGIN;\n7 LOG:  statement: SAVEPOINT a;\n7 LOG:  statement: ROLLBACK TO a;\n"

    assert counted(begun + b"7 LOG:  statement: ROLLBACK;\n") == (4, 0)
    assert counted(begun + b"7 LOG:  statement: COMMIT;\n") == (4, 1)


def test_other_lines_are_passed_over() -> None:
    assert counted(b"1 LOG:  received SIGHUP, reloading configuration files\n\tselect 1\n7 ERROR:  no\n") == (0, 0)


def test_a_line_that_was_half_written_counts_once() -> None:
    counter = StatementCounter()
    for start in range(0, len(IN_A_TRANSACTION), 11):
        counter.feed(IN_A_TRANSACTION[start : start + 11])

    assert (counter.statements, counter.transactions) == (4, 2)


@pytest.mark.slow
async def test_a_server_counts_what_a_client_executes(folder: Path) -> None:
    async with run_logged_postgres(folder) as (url, log), connected(url) as connection:
        await connection.fetchval("select 1")
        before_it_is_on = await log.read()
        async with log.on():
            async with connection.transaction():
                await connection.fetchval("select $1::int", 2)
            counts = await log.read()

    assert before_it_is_on == (0, 0)
    assert counts == (3, 1)
