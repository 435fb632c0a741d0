"""The plans by which PostgreSQL runs a statement of ours."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from throughline.db.connection.pool import ConnectionPool, Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.domain.basic_types import JsonObject


class ExplainedTransactions(Transactions):
    """Notes the plan of the last statement that contains `words`, as it was run."""

    plan: JsonObject

    def __init__(self, pool: ConnectionPool, words: str) -> None:
        super().__init__(pool)
        self._words = words

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        if self._words in statement.text:
            explained = replace(statement, text=f"explain (analyze, format json) {statement.text}")
            (row,) = await super().fetch(explained, **parameters)
            plan = row["QUERY PLAN"]
            self.plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return await super().fetch(statement, **parameters)


def nodes_of(plan: JsonObject) -> Iterator[JsonObject]:
    yield plan
    children = plan.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        assert isinstance(child, dict)
        yield from nodes_of(child)
