"""`throughline memories …`, over the wire."""

from collections.abc import Callable
from uuid import UUID

from click.testing import Result

from fakes.fake_parts import FakeWorld

Throughline = Callable[..., Result]


def test_a_memory_is_added_shown_edited_and_deleted(world: FakeWorld, throughline: Throughline) -> None:
    added = throughline("memories", "add", "Anna's cat is called [b]Miso[/b].\x1b[2J")
    memory_id = added.stdout.strip()
    shown = throughline("memories", "show", memory_id)
    edited = throughline("memories", "edit", memory_id, "It is called Tofu.")
    after = throughline("memories", "show", memory_id)
    deleted = throughline("memories", "delete", memory_id, "--yes")

    assert [result.exit_code for result in (added, shown, edited, after, deleted)] == [0] * 5
    assert shown.stdout.endswith("Anna's cat is called [b]Miso[/b].\n")
    assert "It is called Tofu." in after.stdout
    assert (f"memory {memory_id} is changed" in edited.stderr, world.service.memories.kept) == (True, {})


def test_memories_are_listed_over_pages_newest_first(world: FakeWorld, throughline: Throughline) -> None:
    for number in range(130):
        world.service.memories.add(f"text {number}\nmore")

    whole = throughline("memories", "list", "--limit", "130")
    part = throughline("memories", "list", "--limit", "3")
    rest = throughline("memories", "list", "--cursor", "128")

    assert [line.split()[-2] for line in whole.stdout.splitlines()] == [str(number) for number in range(129, -1, -1)]
    assert "--cursor 3" in part.stderr
    assert len(rest.stdout.splitlines()) == 2


def test_memories_are_searched(world: FakeWorld, throughline: Throughline) -> None:
    world.service.memories.add("The cat is called Miso.")
    world.service.memories.add("The dog is called Rex.")

    found = throughline("memories", "search", "cat")
    nothing = throughline("memories", "search", "zebra")

    assert "Miso" in found.stdout
    assert "Rex" not in found.stdout
    assert "nothing was found" in nothing.stderr


def test_without_memories_it_is_said_how_to_keep_one(throughline: Throughline) -> None:
    assert "throughline memories add" in throughline("memories", "list").stderr


def test_a_memory_is_deleted_only_after_a_yes(world: FakeWorld, throughline: Throughline) -> None:
    memory_id = world.service.memories.add("text")

    refused = throughline("memories", "delete", memory_id, typed="n\n")
    kept = len(world.service.memories.kept)
    deleted = throughline("memories", "delete", memory_id, typed="y\n")

    assert (refused.exit_code, kept, deleted.exit_code, world.service.memories.kept) == (1, 1, 0, {})


def test_an_unknown_memory_is_an_error_in_a_sentence(throughline: Throughline) -> None:
    result = throughline("memories", "show", str(UUID(int=1)))

    assert (result.exit_code, result.stderr) == (1, f"Error: There is no memory {UUID(int=1)}.\n")
