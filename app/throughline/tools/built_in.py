"""Built-in tools, which every agent may name without any plugin."""

import ast
import math
import operator
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, NoReturn, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import Field

from throughline.tools.make_function_tool import Tool, ToolFailed, make_function_tool

Number: TypeAlias = int | float

MAX_CHARACTERS = 500
MAX_DEPTH = 50
MAX_BITS = 4096
"""Longest intermediate integer in bits: about 1,200 digits, still instant to compute and to print."""

MAX_ROUND_DIGITS = 100
SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})  # notations of people and models


def calculator(expression: str) -> str:
    """Calculate an arithmetic expression exactly, for example (17 * 23 + 4) / 5 or sqrt(2) ** 3.

    Args:
        expression: numbers with + - * / // % ** and parentheses; pi, e; abs, ceil, cos, exp, floor, log, log10, log2,
            max, min, round, sin, sqrt, tan.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ToolFailed(f"The expression is too long: at most {MAX_CHARACTERS} characters.")
    try:
        tree = _parse(expression.translate(SIGNS).strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        raise ToolFailed("This is not an arithmetic expression. Write for example (17 * 23 + 4) / 5.") from error
    try:
        return _show(_evaluate(tree.body, depth=0))
    except ZeroDivisionError as error:
        raise ToolFailed("Division by zero.") from error
    except OverflowError as error:
        raise ToolFailed("A number on the way is too large.") from error
    except (ValueError, TypeError) as error:  # sqrt(-1), log(0), round(1, 2, 3)
        raise ToolFailed("A function was given a number, or a count of numbers, that it cannot take.") from error


def _parse(text: str) -> ast.Expression:
    """Return the syntax tree of the expression. Raises SyntaxError and other errors of `ast.parse`.

    Parsing is repeated once after a SystemError, which some releases of CPython 3.11 raise at random (gh-106905).
    """
    try:
        return ast.parse(text, mode="eval")
    except SystemError:
        return ast.parse(text, mode="eval")


def _evaluate(node: ast.expr, *, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ToolFailed(f"The expression is nested too deeply: at most {MAX_DEPTH} levels.")
    match node:
        case ast.Constant(value=bool()):
            raise _not_allowed(node)
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            return UNARY[type(op)](_evaluate(operand, depth=depth + 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            left_value = _evaluate(left, depth=depth + 1)
            return _bounded(BINARY[type(op)](left_value, _evaluate(right, depth=depth + 1)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return _bounded(FUNCTIONS[name](*(_evaluate(argument, depth=depth + 1) for argument in args)))
        case _:
            raise _not_allowed(node)


def _power(base: Number, exponent: Number) -> Number:
    """Return `base` to the power of `exponent`. Raises ToolFailed for a complex result.

    Raises OverflowError for integers whose power would have more than MAX_BITS, before it is computed.
    """
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and abs(base) > 1
        and base.bit_length() * exponent > MAX_BITS
    ):
        raise OverflowError
    result = base**exponent
    if isinstance(result, complex):
        raise ToolFailed("The result is not a real number.")
    return float(result) if isinstance(result, float) else int(result)


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_ROUND_DIGITS:
        raise ValueError
    return round(number, digits) if digits else round(number)


def _bounded(value: Number) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise OverflowError
    elif not math.isfinite(value):
        raise OverflowError
    return value


def _show(value: Number) -> str:
    """Return the number as text: a float with at most 15 significant digits, so that 0.1 + 0.2 is 0.3."""
    return str(value) if isinstance(value, int) else f"{value:.15g}"


def _not_allowed(node: ast.expr) -> ToolFailed:
    what = node.id if isinstance(node, ast.Name) else type(node).__name__
    return ToolFailed(
        f"{what} is not allowed here. Use numbers, + - * / // % ** and parentheses, "
        f"{', '.join(CONSTANTS)}, and the functions {', '.join(FUNCTIONS)}."
    )


CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e}
UNARY: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": _round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}


def make_current_time(now: Callable[[], float]) -> Callable[..., str]:
    """Return the function of the tool `current_time`. `now` returns seconds since the epoch."""

    def current_time(timezone: str = "UTC") -> str:
        """Tell the current date, weekday and time in a time zone.

        Args:
            timezone: an IANA name such as Europe/Berlin or America/New_York.
        """
        moment = datetime.fromtimestamp(now(), _find_zone(timezone))
        return f"{moment.isoformat(timespec='seconds')} ({moment:%A}, {timezone})"

    return current_time


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # not found, no proper name, a folder
        raise ToolFailed(
            f"There is no time zone {name[:80]!r}. Use an IANA name such as Europe/Berlin, or UTC."
        ) from error


def ask_user(
    question: Annotated[str, Field(min_length=1, max_length=4_000)],
    options: Annotated[list[str], Field(max_length=20)] | None = None,
) -> NoReturn:
    """Ask the user a question and wait for the answer, which may take hours. Ask only what you cannot find out.

    Args:
        question: the question, complete in itself
        options: answers to choose from; the user may answer otherwise
    """
    # The turn never calls it with a valid question: it waits for a person instead.
    raise ToolFailed(f"Nobody can be asked now: {question[:100]!r}, {len(options or ())} options.")


def make_built_in_tools(*further: Callable[..., object], now: Callable[[], float] = time.time) -> tuple[Tool, ...]:
    """Return `calculator`, `current_time`, `ask_user` and `further` functions of the service that need the database.

    `now` returns seconds since the epoch.
    """
    functions = (calculator, make_current_time(now), ask_user, *further)
    return tuple(make_function_tool(function, origin=function.__name__) for function in functions)
