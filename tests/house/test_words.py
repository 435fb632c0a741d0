"""Words that the glossary rules out, and docstrings that only repeat a name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from house.tree import ROOT, name_of, own_files, python_files, syntax_tree

GLOSSARY = ROOT / "docs" / "glossary.md"
NOT_USED = "## Words that we do not use"
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""A word of a text, or a part of a name: `MessageList` and `message_list` have the same two."""

FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")
RULE = re.compile(r"noqa: [A-Z0-9, ]+")
TESTS = ("tests/", "benchmarks/", "chaos/")
TEXTS = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", ".env.example", "docs/", "app/throughline/", *TESTS)
UNCHECKED = ("docs/glossary.md", "docs/decisions/", "tests/house/test_words.py", "benchmarks/data/")
"""Decisions are records: each speaks the words of its day."""

EVERYDAY = frozenset({"door", "hub", "ledger"})
"""What people talk of in the conversations of tests and benchmarks."""

KEPT = {
    "docs/examples/summarize_a_transcript.py": {"ledger"},  # what the users in it speak of
    "app/throughline/llm/counters.py": {"hub"},  # the Hugging Face Hub
    "app/throughline/context/summaries/summary_prompt.py": {"stretches", "wishes"},  # what a model reads
    "app/throughline/context/summaries/facts_choice_prompt.py": {"wishes"},  # the same
    "tests/context/test_summary_prompt.py": {"wishes"},  # the same
    "tests/summary/test_summaries_on_demand.py": {"wishes"},  # the same
    "CHANGELOG.md": {"rung", "rungs", "stretch", "stretches", "beat"},  # what names in the API were before
}
LITTLE = frozenset(
    WORD.findall(
        "a an the of for its it is are be by to in on at and or with from as this that one all each whether if"
    )
) | {"whether", "return", "yield", "given", "new"}
ENDINGS = ("ings", "ing", "ies", "ed", "es", "s", "e", "y")
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_words_that_the_glossary_rules_out_are_not_used() -> None:
    unused = _unused_words()
    found = [
        f"{name_of(path)}: {word}"
        for path in own_files()
        if name_of(path).startswith(TEXTS) and not name_of(path).startswith(UNCHECKED)
        if path.suffix in {".py", ".md", ".yaml", ".example"}
        for word in sorted(_words(f"{path.stem} {_text_of(path)}") & unused - _kept(name_of(path)))
    ]

    assert len(unused) > 20
    assert found == []


def test_exceptions_from_the_glossary_are_needed() -> None:
    assert [
        f"{name}: {word}" for name, words in KEPT.items() for word in sorted(words - _words(_text_of(ROOT / name)))
    ] == []


def test_files_named_in_the_code_exist() -> None:
    """A rename leaves them behind."""
    gone = [
        f"{name_of(path)}: {name}"
        for path in python_files("app")
        for name in FILE.findall(_text_of(path))
        if not any((folder / name).exists() for folder in (path.parent, ROOT / "app" / "throughline", ROOT))
    ]

    assert gone == []


def test_a_docstring_says_more_than_the_name_does() -> None:
    empty = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in python_files("app")
        for node, owner in _documented(syntax_tree(path), "")
        if _only_repeats(node, owner)
    ]

    assert empty == []


def _kept(name: str) -> frozenset[str]:
    return EVERYDAY.union(KEPT.get(name, ())) if name.startswith(TESTS) else frozenset(KEPT.get(name, ()))


def _unused_words() -> frozenset[str]:
    table = GLOSSARY.read_text(encoding="utf-8").partition(NOT_USED)[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    return frozenset(word.strip() for row in rows for word in row.split(","))


def _text_of(path: Path) -> str:
    """Return the file's text without the names of lint rules."""
    return RULE.sub("", path.read_text(encoding="utf-8"))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORD.findall(text))


def _documented(node: ast.AST, owner: str) -> Iterator[tuple[Documented, str]]:
    """Yield functions and classes with the class they stand in. Routes and commands are left out: users read those."""
    for item in getattr(node, "body", []):
        if isinstance(item, Documented):
            if not item.decorator_list or isinstance(item, ast.ClassDef):
                yield item, owner
            yield from _documented(item, item.name if isinstance(item, ast.ClassDef) else owner)


def _only_repeats(node: Documented, owner: str) -> bool:
    text = ast.get_docstring(node)
    if text is None:
        return False
    names = f"{node.name} {owner}"
    if not isinstance(node, ast.ClassDef):
        names += f" {ast.unparse(node.args)} {ast.unparse(node.returns) if node.returns else ''}"
    return _stems(text) <= _stems(names)


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in _words(text) - LITTLE)


def _stem(word: str) -> str:
    ending = next((ending for ending in ENDINGS if word.endswith(ending) and len(word) - len(ending) > 2), "")
    return word.removesuffix(ending)
