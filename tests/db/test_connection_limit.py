"""The connections that a service may use: those allowed, without those in use."""

from fakes.pooler import urls_of
from fakes.raw_sql import connected, run_sql
from throughline.db.connection.address import DatabaseUrls
from throughline.db.database import ConnectionLimit, read_connection_limit


async def test_connections_of_others_are_not_free(empty_database_url: str) -> None:
    urls = DatabaseUrls(**urls_of(empty_database_url))
    ((name,),) = await run_sql(empty_database_url, "select current_database()")
    whole = await read_connection_limit(urls.session_address())
    await run_sql(empty_database_url, f'alter database "{name}" connection limit 7')

    async with connected(empty_database_url), connected(empty_database_url):
        limited = await read_connection_limit(urls.session_address())

    assert 0 < whole.free <= whole.allowed
    assert limited == ConnectionLimit(allowed=7, free=5, own=0)


async def test_connections_of_the_service_itself_are_counted_apart(empty_database_url: str) -> None:
    urls = DatabaseUrls(**urls_of(empty_database_url))

    async with connected(empty_database_url) as one, connected(empty_database_url) as other:
        await one.execute("set application_name to 'throughline'")
        await other.execute("set application_name to 'backup'")
        limit = await read_connection_limit(urls.session_address())

    assert limit.own == 1
