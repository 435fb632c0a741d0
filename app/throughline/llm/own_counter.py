"""An operator's own token counter, named `module:function`: tried when an agent is loaded, and never trusted since."""

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from throughline.domain.errors import SettingInvalid
from throughline.domain.text import clean_text
from throughline.execution.outcome import Raised, Returned, outcome_of
from throughline.llm.chars_counter import CharsCounter

TRIAL_SECONDS = 2.0
"""The trial text is some 2,500 tokens: a counter that needs longer for it would hold up every turn."""

TRIAL_TEXT = "One two three, vier fünf sechs, 七八九 <|endoftext|> 🙂\n" * 200
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Trial:
    """What came of calling a stranger's function: a count, or what is wrong with it."""

    function: Callable[[str], object]
    problem: str | None = "takes too long"

    def run(self) -> None:
        for text in ("", "one two three", TRIAL_TEXT):
            problem = _problem_with(self.function, text)
            if problem is not None:
                self.problem = problem
                return
        self.problem = None


@dataclass(slots=True)
class FunctionCounter:
    """Counts with an operator's own function; where that fails, by characters, so that no turn fails with it."""

    name: str
    function: Callable[[str], object]
    _has_complained: bool = field(default=False, compare=False)

    def count(self, text: str) -> int:
        """Return what the function says, or the estimate of `chars` where it says no count."""
        cleaned = clean_text(text)
        outcome = outcome_of(lambda: _as_count(self.function(cleaned)))
        if isinstance(outcome, Raised):
            self._complain(type(outcome.error).__name__)
            return CharsCounter().count(cleaned)
        return outcome.value

    def _complain(self, problem: str) -> None:
        """Say it once: a broken counter is asked for every message."""
        if not self._has_complained:
            self._has_complained = True
            log.warning("token counter failed, counting by characters", counter=self.name, error=problem)


def import_counter(name: str, module_name: str, attribute: str) -> FunctionCounter:
    """Return the counter `name`, tried on short, empty and long texts.

    Raises SettingInvalid where it cannot be imported or called, raises, returns no count or takes too long.
    """
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # importing runs somebody else's code, which may raise anything
        raise SettingInvalid(
            f"token counter {name!r} cannot be imported ({type(error).__name__}: {error}): name it module:function"
        ) from error
    if not callable(function):
        raise SettingInvalid(f"token counter {name!r} is no function: it must take a text and return an int")
    problem = _try(function)
    if problem is not None:
        raise SettingInvalid(f"token counter {name!r} {problem}: it must take a text and return an int of 0 or more")
    return FunctionCounter(name, function)


def _try(function: Callable[[str], object]) -> str | None:
    """Try the function in a thread that is left behind if it never returns."""
    trial = _Trial(function)
    thread = threading.Thread(target=trial.run, name="token-counter-trial", daemon=True)
    thread.start()
    thread.join(TRIAL_SECONDS)
    return trial.problem


def _problem_with(function: Callable[[str], object], text: str) -> str | None:
    match outcome_of(lambda: _as_count(function(text))):
        case Returned():
            return None
        case Raised(_NoCount() as error):
            return str(error)
        case Raised(error):
            return f"raised {type(error).__name__}"


class _NoCount(Exception):
    """Raised for a value that is no number of tokens."""


def _as_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _NoCount(f"returned {repr(value)[:60]}")
    return value
