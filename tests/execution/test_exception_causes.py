"""What is said of an exception group: the exceptions in it."""

from pathlib import Path

import pytest

from throughline.domain.errors import SettingInvalid, causes_of, class_and_text, class_names, only_cause_of
from throughline.execution.call_plugin import import_plugin

FIRST, SECOND = KeyError("a"), OSError("b")


def test_of_a_group_the_exceptions_in_it_are_named() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [FIRST, SECOND]), KeyError("a")])

    assert class_names(group) == "KeyError, OSError"
    assert class_and_text(group) == "KeyError: 'a'; OSError: b"
    assert only_cause_of(group) is group


def test_a_single_exception_is_its_own_cause_at_any_depth() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [FIRST])])

    assert only_cause_of(group) is only_cause_of(FIRST) is FIRST
    assert class_and_text(SECOND) == "OSError: b"


def test_a_group_that_is_too_large_or_too_deep_says_what_was_seen() -> None:
    deep: Exception = FIRST
    for _ in range(1_000):
        deep = ExceptionGroup("deeper", [deep])

    assert causes_of(deep) == (deep,)
    assert len(causes_of(ExceptionGroup("wide", [OSError(str(n)) for n in range(1_000)]))) == 3


def test_a_package_missing_inside_a_group_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "try:\n    import no_such_package\nexcept ImportError as error:\n    raise ExceptionGroup('x', [error])\n"
    (tmp_path / "needs_a_package.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(SettingInvalid, match="there is no module 'no_such_package'; put its file beside"):
        import_plugin("needs_a_package:run", kind="tool")
