"""How many processes the connections of PostgreSQL allow."""

import pytest

from throughline.assembly.serve_processes import allowed_processes
from throughline.db.connection.address import DatabaseUrls
from throughline.domain.errors import SettingInvalid
from throughline.settings import Settings

MANY = 200


@pytest.mark.parametrize("is_auto", [False, True])
async def test_behind_a_pooler_alone_any_number_of_processes_is_allowed(*, is_auto: bool) -> None:
    urls = DatabaseUrls("postgresql://nowhere.invalid/db", listens=False, has_only_pooler=True)

    assert await allowed_processes(Settings(), urls, MANY, is_auto=is_auto) == MANY


async def test_with_connections_of_their_own_processes_are_limited(empty_database_url: str) -> None:
    urls = DatabaseUrls(empty_database_url)

    with pytest.raises(SettingInvalid, match="200 processes, and one more while they are replaced, need 2613"):
        await allowed_processes(Settings(), urls, MANY, is_auto=False)
    assert await allowed_processes(Settings(), urls, MANY, is_auto=True) < MANY
