"""The command `throughline agents new NAME`: writes an agent file and a tool beside it, as a beginning."""

import re
from pathlib import Path

import click

from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")

AGENT_FILE = """\
# Every other field, with its default: docs/reference/agent-file.md
name: "{name}"
description: Says what it is for, in one line.
model:                      # empty: the setting DEFAULT_LLM
system_prompt: |-
  You are {name}. Answer clearly and briefly.
tools: [current_time, "{module}:{prefix}_word_count"]
"""
TOOL_FILE = '''\
"""Tools of the agent {name}. Annotations become the schema, the docstring is what the model knows of a tool.

LangChain's tools and toolkits work as well: name the object in the agent file as `{module}:attribute`.
"""


def {prefix}_word_count(text: str) -> int:
    """Return how many words a text has.

    Args:
        text: the text to count in.
    """
    return len(text.split())
'''


@click.command("new")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    envvar="AGENTS_DIR",
    help="Folder of the files.  [default: AGENTS_DIR, agents]",
)
def new_agent(name: str, folder: Path | None) -> None:
    """Write an agent file NAME.yaml and a file with a tool beside it. No file is overwritten."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:70]!r} cannot be an agent's name: write a small letter, then small letters, digits, '_' or '-'."
        )
    target = folder or Path("agents")
    prefix = name.replace("-", "_")
    module = f"{prefix}_tools"
    files = {target / f"{name}.yaml": AGENT_FILE, target / f"{module}.py": TOOL_FILE}
    present = [str(path) for path in files if path.exists()]
    if present:
        raise InvalidInput(f"{', '.join(present)}: exists already. Choose another name, or another folder with --dir.")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text.format(name=name, module=module, prefix=prefix), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{target}: cannot be written ({error.strerror or type(error).__name__}).") from error
    screen = Screen()
    for path in files:
        screen.say(f"wrote {path}")
    screen.note("try it:", command=f"AGENTS_DIR={target} throughline chat {name}")
