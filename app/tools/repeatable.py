"""Marks a tool whose effect must not happen twice, such as one that sends a mail."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def not_repeatable(function: Callable[P, R]) -> Callable[P, R]:
    """Mark `function`: where a process died during a call, it is not called again and the model is told so."""
    function.repeatable = False  # type: ignore[attr-defined]  # functions take attributes, their type does not say so
    return function


def is_repeatable(function: Callable[..., object]) -> bool:
    """Whether the function may be called again where its first outcome is unknown."""
    return bool(getattr(function, "repeatable", True))
