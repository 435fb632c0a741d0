"""The made parts of the pages of the command line: the commands, and their options."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import click

from scripts.reference.markdown import code, table
from throughline.assembly.front_ends import commands
from throughline.cli.root import command_line

ROOT = command_line(commands())
Command: TypeAlias = tuple[str, click.Command]
DEFAULT = re.compile(r" +\[default: (.*)\]$")
MANY = 10
"""Number of commands from which an option is described once for all of them."""


def commands_parts() -> dict[str, str]:
    """Return the table of all commands."""
    rows = ((code(_usage(path, command)), _help(command)) for path, command in _commands())
    return {"commands": table(("command", "what it does"), rows)}


def options_parts() -> dict[str, str]:
    """Return the table of the options that many commands have, and the table of all others."""
    found = [(path, option) for path, command in _commands() for option in _options(command)]
    users: dict[tuple[str, ...], list[str]] = {}
    for path, option in found:
        users.setdefault(_row(option), []).append(path)
    shared = {row for row, paths in users.items() if len(paths) >= MANY}
    own = ((code(path), *_row(option)) for path, option in found if _row(option) not in shared)
    columns = ("option", "value", "default", "meaning")
    return {
        "shared-options": table(
            (*columns, "commands"), ((*row, _commands_in_words(users[row])) for row in users if row in shared)
        ),
        "options": table(("command", *columns), own),
    }


def _commands_in_words(users: Sequence[str]) -> str:
    """Return the paths of commands as a list in Markdown.

    A group is shortened to `GROUP …` if it has several commands and all are listed.
    """
    names: dict[str, None] = {}
    for group in dict.fromkeys(path.split()[1] for path in users):
        own = [path for path in users if path.split()[1] == group]
        every = [path for path, _ in _commands() if path.split()[1] == group]
        names |= dict.fromkeys(
            [f"{group} …"] if own == every and len(own) > 1 else [path.split(" ", 1)[1] for path in own]
        )
    return ", ".join(map(code, names))


def _commands() -> Iterator[Command]:
    """Yield path and command of each command that can be called."""
    yield from _walk(ROOT, "throughline")


def _walk(group: click.Group, path: str) -> Iterator[Command]:
    """Yield path and command of each runnable command below a group, at any depth.

    A hidden command gets the group's own path: the group runs it when no subcommand is named.
    """
    for name, command in group.commands.items():
        own = path if command.hidden else f"{path} {name}"
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield own, command
        if isinstance(command, click.Group):
            yield from _walk(command, own)


def _usage(path: str, command: click.Command) -> str:
    pieces = command.collect_usage_pieces(click.Context(command))
    arguments = [piece for piece in pieces if piece != "[OPTIONS]" and "COMMAND" not in piece and "ARGS" not in piece]
    return " ".join((path, *arguments))


def _help(command: click.Command) -> str:
    return " ".join((command.help or "").split())


def _options(command: click.Command) -> Sequence[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _row(option: click.Option) -> tuple[str, str, str, str]:
    """Return names, value, default and meaning of an option. A default that its help tells goes into its column."""
    text = option.help or ""
    told = DEFAULT.search(text)
    default = told[1] if told else _default(option)
    return ", ".join(map(code, option.opts)), _value(option), default, DEFAULT.sub("", text)


def _value(option: click.Option) -> str:
    """Return what the option takes, '' for a flag."""
    kind = option.type
    if option.is_flag:
        return ""
    if isinstance(kind, click.IntRange):
        return f"{kind.min:,} to {kind.max:,}"
    if isinstance(kind, click.Choice):
        return ", ".join(map(code, kind.choices))
    return code(option.metavar or kind.name.upper())


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.envvar:
        return code(option.envvar)
    default = option.get_default(click.Context(ROOT), call=False)
    if option.is_flag or default in {None, ""} or not isinstance(default, str | int | tuple):
        return ""
    return ", ".join(map(code, default if isinstance(default, tuple) else (default,)))
