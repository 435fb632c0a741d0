"""Users: owners of sessions, identified by name."""

from throughline.db.connection.transactions import Transactions
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.sql import sql
from throughline.domain.errors import InvalidInput
from throughline.domain.ids import UserId
from throughline.domain.text import clean_text, is_blank

MAX_NAME_LENGTH = 200
_FIND = sql("select id from users where name = :name")
_CREATE = sql("insert into users (id, name) values (:id, :name) on conflict (name) do nothing returning id")


class UserRepository:
    """Storage of users: lookup by name, and creation."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get(self, name: str) -> UserId | None:
        """Return the user's id, None if there is no user with this name."""
        rows = await self._transactions.fetch(_FIND, name=name)
        return UserId(rows[0]["id"]) if rows else None

    async def get_or_create(self, name: str) -> UserId:
        """Return the id of the user with this name, created if missing. Raises InvalidInput for an invalid name."""
        if not 0 < len(name) <= MAX_NAME_LENGTH:
            raise InvalidInput(f"A user's name has 1 to {MAX_NAME_LENGTH} characters, not {len(name)}.", field="user")
        if is_blank(name) or clean_text(name) != name:
            raise InvalidInput(
                f"A user's name must not be blank, and must not hold NUL or lone surrogates, not {name!a}.",
                field="user",
            )
        found = await self.get(name)
        while found is None:
            rows = await self._transactions.fetch(_CREATE, id=new_id(), name=name)
            found = UserId(rows[0]["id"]) if rows else await self.get(name)
        return found
