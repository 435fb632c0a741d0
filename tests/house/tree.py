"""The project's own files, as the house rules look at them."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {".git", ".venv", "htmlcov", "dist", "data"}


@cache
def own_files() -> tuple[Path, ...]:
    """Return every file that is or may become part of the project: those git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    else:  # a copy without its history
        paths = (path for path in ROOT.rglob("*") if not GENERATED & set(path.relative_to(ROOT).parts))
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*folders: str) -> Iterator[Path]:
    """Yield the Python files below the folders, of all of them if none is named."""
    for path in own_files():
        if path.suffix == ".py" and (not folders or path.relative_to(ROOT).parts[0] in folders):
            yield path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the file's syntax tree. Some releases of CPython 3.11 fail at it now and then (gh-106905), not twice."""
    text = path.read_text(encoding="utf-8")
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)


def comments(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each comment in which the pattern is found; few files hold it at all."""
    text = path.read_text(encoding="utf-8")
    if not pattern.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and pattern.search(token.string):
            yield token.start[0], token.string


def name_of(path: Path) -> str:
    """Return the path as it stands in the project."""
    return path.relative_to(ROOT).as_posix()
