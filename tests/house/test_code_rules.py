import ast
import re
from collections import Counter
from pathlib import Path

from house.tree import ROOT, comments, name_of, own_files, python_files, syntax_tree

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = ast.Attribute | ast.Name
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 40
MAX_TEST_NAME = 80
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
SUPPRESSION = re.compile(
    r"#\s*(noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?|type:\s*ignore(\[[\w, -]+\])?|pragma: no (cover|branch))"
)
BOUNDARY = "app/throughline/execution/error_boundary.py"
"""Where whatever is raised may be caught: all else uses what this file offers."""

MOST_BLIND = 2
"""What providers' packages raise, which is translated, and the panics of tokenizers, whose class nobody can import."""

MOST_OUTCOMES = 10
"""Calls of `outcome_of` and `outcome_of_awaiting`: plugins, side jobs, deliveries, own tools, a provider's response.

Servers of tools too: a connection, and a call.
"""

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

CLAIMING_NAME = "assert_"
"""How the names of functions begin that judge for the tests of several files."""


def test_files_are_about_one_thing() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}

    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_stay_short() -> None:
    long = {
        f"{name_of(path)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in python_files()
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, Function)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }

    assert long == {}


def test_names_of_tests_can_be_read_at_a_glance() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in python_files("tests")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, Function) and node.name.startswith("test_") and len(node.name) > MAX_TEST_NAME
    ]

    assert long == []


def test_every_test_claims_something() -> None:
    silent = [
        f"{name_of(path)}:{test.lineno} {test.name}"
        for path in python_files("tests")
        for test in _silent_tests(syntax_tree(path))
    ]

    assert silent == []


def _silent_tests(tree: ast.Module) -> list[Function]:
    """Return the tests that neither claim something nor call what does: a function of their file, or one so named."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    tests = [node for node in functions if node.name.startswith("test_")]
    judges = {node.name for node in functions if node not in tests and _claims(node)}
    return [
        test
        for test in tests
        if not _claims(test)
        and not any(name in judges or name.startswith(CLAIMING_NAME) for name in _called_names(test))
    ]


def _claims(function: Function) -> bool:
    return not {"raises", "warns"}.isdisjoint(_called_names(function)) or any(
        isinstance(node, ast.Assert) for node in ast.walk(function)
    )


def _called_names(function: Function) -> set[str]:
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {node.attr if isinstance(node, ast.Attribute) else node.id for node in called if isinstance(node, Named)}


def test_file_names_say_what_is_inside() -> None:
    assert [name_of(path) for path in python_files() if path.stem.strip("_") in BANNED_NAMES] == []


def test_test_files_have_different_names() -> None:
    names = Counter(path.name for path in python_files("tests") if path.name.startswith("test_"))

    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_have_one_name() -> None:
    """But for the shapes of the interface, which have the name of what they show."""
    places = [
        (node.name, name_of(path))
        for path in python_files("app")
        if "wire" not in path.parts
        for node in syntax_tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    count = Counter(name for name, _ in places)

    assert [place for place in places if count[place[0]] > 1] == []


def test_nothing_hides_the_alembic_library() -> None:
    assert list((ROOT / "alembic").rglob("__init__.py")) == []


def test_only_the_database_layer_commits() -> None:
    callers = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("app")
        if path.relative_to(ROOT).parts[:3] != ("app", "throughline", "db")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Attribute) and node.attr == "commit"
    ]

    assert callers == []


def test_nothing_is_left_unfinished() -> None:
    stubs = [
        f"{name_of(path)}:{name.lineno}"
        for path in python_files("app", "alembic", "benchmarks", "chaos")
        if "NotImplementedError" in path.read_text(encoding="utf-8")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Raise) and node.exc is not None
        for name in ast.walk(node.exc)
        if isinstance(name, ast.Name) and name.id == "NotImplementedError"
    ]
    notes = [f"{name_of(path)}:{line}" for path in python_files() for line, _ in comments(path, UNFINISHED)]

    assert stubs + notes == []


def test_every_suppression_carries_its_reason() -> None:
    bare = [
        f"{name_of(path)}:{line} {text}"
        for path in python_files()
        for line, text in comments(path, SUPPRESSION)
        if not _reason(text)
    ]

    assert bare == []


def test_few_places_catch_whatever_comes() -> None:
    blind = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("app")
        for node in ast.walk(syntax_tree(path))
        if name_of(path) != BOUNDARY
        if isinstance(node, ast.Call | ast.ExceptHandler) and _catches_whatever_comes(node)
    ]

    assert len(blind) <= MOST_BLIND, blind


def test_few_places_make_a_value_of_whatever_is_raised() -> None:
    outcomes = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("app")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("outcome_of")
    ]

    assert len(outcomes) <= MOST_OUTCOMES, outcomes


def _catches_whatever_comes(node: ast.Call | ast.ExceptHandler) -> bool:
    """Whether it is an `except` for everything, or for what a variable says, or the like of `suppress`.

    One that ends by raising the same error again catches nothing.
    """
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).endswith("suppress") and any(map(_is_everything, node.args))
    last = node.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(kind is None or _is_everything(kind) for kind in kinds)


def _is_everything(kind: ast.AST) -> bool:
    return isinstance(kind, ast.Name) and (kind.id in {"Exception", "BaseException"} or kind.id.islower())


def _reason(comment: str) -> str:
    return SUPPRESSION.sub("", comment).strip("# ")


def test_importing_a_module_does_nothing() -> None:
    """Top-level statements define; none of them is a bare call."""
    calls = [
        f"{name_of(path)}:{statement.lineno}"
        for path in python_files("app")
        for statement in syntax_tree(path).body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ]

    assert calls == []


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in python_files("app", "alembic", "benchmarks", "chaos")
        if path.stat().st_size and not ast.get_docstring(syntax_tree(path))
    ]

    assert silent == []


def test_there_are_files_to_look_at() -> None:
    """The rules above would hold for an empty tree too."""
    assert Path(__file__) in own_files()
    assert len(list(python_files("app"))) > 50
