"""`throughline memories …`, over the wire."""

from uuid import UUID

from fakes.command_stage import CommandStage
from throughline.domain.recall import Memory

MANY = """
    insert into memories (id, user_id, text, terms, analyzer, created_at, updated_at)
    select gen_random_uuid(), $1, format(e'text %s\\nmore', n), '{}', '', now() + n * interval '1 second', now()
    from generate_series(0, 129) n
"""


async def keep(service: CommandStage, text: str) -> Memory:
    return await service.api.services.memories.create(service.owner_id, text, {})


async def texts(service: CommandStage) -> list[object]:
    return [text for (text,) in await service.sql("select text from memories")]


async def test_a_memory_is_added_shown_edited_and_deleted(service: CommandStage) -> None:
    added = await service.run("memories", "add", "Anna's cat is called [b]Miso[/b].\x1b[2J")
    memory_id = added.stdout.strip()
    shown = await service.run("memories", "show", memory_id)
    edited = await service.run("memories", "edit", memory_id, "It is called Tofu.")
    after = await service.run("memories", "show", memory_id)
    deleted = await service.run("memories", "delete", memory_id, "--yes")

    assert [result.exit_code for result in (added, shown, edited, after, deleted)] == [0] * 5
    assert shown.stdout.endswith("Anna's cat is called [b]Miso[/b].\n")
    assert "It is called Tofu." in after.stdout
    assert (f"memory {memory_id} is changed" in edited.stderr, await texts(service)) == (True, [])


async def test_memories_are_listed_over_pages_newest_first(service: CommandStage) -> None:
    await service.sql(MANY, service.owner_id)

    whole = await service.run("memories", "list", "--limit", 130)
    part = await service.run("memories", "list", "--limit", 128)
    rest = await service.run("memories", "list", "--cursor", part.stderr.split("--cursor ")[1].strip())

    numbers = [line.split()[-2] for line in whole.stdout.splitlines()]
    assert numbers == [str(number) for number in range(129, -1, -1)]
    assert len(part.stdout.splitlines()) == 128
    assert rest.stdout.splitlines() == whole.stdout.splitlines()[-2:]


async def test_memories_are_searched(service: CommandStage) -> None:
    await keep(service, "The cat is called Miso.")
    await keep(service, "The dog is called Rex.")

    found = await service.run("memories", "search", "cat")
    nothing = await service.run("memories", "search", "zebra")

    assert "Miso" in found.stdout
    assert "Rex" not in found.stdout
    assert "nothing was found" in nothing.stderr


async def test_without_memories_it_is_said_how_to_keep_one(service: CommandStage) -> None:
    assert "throughline memories add" in (await service.run("memories", "list")).stderr


async def test_a_memory_is_deleted_only_after_a_yes(service: CommandStage) -> None:
    memory_id = (await keep(service, "text")).id

    refused = await service.run("memories", "delete", memory_id, typed="n\n")
    kept = await texts(service)
    deleted = await service.run("memories", "delete", memory_id, typed="y\n")

    assert (refused.exit_code, kept, deleted.exit_code, await texts(service)) == (1, ["text"], 0, [])


async def test_an_unknown_memory_is_an_error_in_a_sentence(service: CommandStage) -> None:
    result = await service.run("memories", "show", UUID(int=1))

    assert (result.exit_code, result.stderr) == (1, f"Error: There is no memory {UUID(int=1)}.\n")
