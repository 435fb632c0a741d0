"""A message that was taken back or changed in Slack before it was read leaves no text behind in the database."""

from fakes.raw_sql import run_sql
from fakes.slack_double import say
from fakes.slack_double.payloads import deleted, edited, message
from fakes.slack_stage import SlackStage

SECRET = "tangelo42"  # the word that has to go


async def tables_with(url: str, word: str) -> list[str]:
    tables = await run_sql(url, "select schemaname || '.' || tablename from pg_tables where schemaname = 'public'")
    names = [str(name) for (name,) in tables]
    return [
        name for name in names if await run_sql(url, f"select 1 from {name} t where t::text ilike '%{word}%' limit 1")
    ]


async def test_a_waiting_message_deleted_in_slack_leaves_its_text_nowhere(door: SlackStage) -> None:
    said = say(f"the code is {SECRET}")
    await door.sender.once(message(said))
    await door.sender.once(deleted(said))

    assert await tables_with(door.url, SECRET) == []


async def test_the_text_before_an_edit_of_a_waiting_message_stands_nowhere(door: SlackStage) -> None:
    said = say(f"the code is {SECRET}")
    await door.sender.once(message(said))
    await door.sender.once(edited(said, "what is 20+20"))

    assert await tables_with(door.url, SECRET) == []
