"""Token counters written by operators, named `module:function`: tested at loading, guarded in every later call."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from throughline.domain.errors import SettingInvalid
from throughline.domain.text import clean_text
from throughline.execution.call_plugin import PluginCall, PluginTimedOut, ThreadLimitReached
from throughline.execution.import_plugin import import_plugin
from throughline.execution.outcome import Raised, outcome_of
from throughline.llm.chars_counter import CharsCounter

TRIAL_SECONDS = 2.0
"""Time limit for the trial texts, about 2,500 tokens: a slower counter would delay every turn."""

TRIAL_TEXTS = ("", "one two three", "One two three, vier fünf sechs, 七八九 <|endoftext|> 🙂\n" * 200)
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PluginCounter:
    """Token counter that calls an operator's function; if it fails, characters are counted, so that no turn fails."""

    name: str
    function: Callable[[str], object]
    _has_failed: bool = field(default=False, compare=False)

    def count(self, text: str) -> int:
        """Return the function's count, or the estimate of `chars` if it gives no valid count."""
        cleaned = clean_text(text)
        outcome = outcome_of(lambda: _count(self.function, cleaned))
        if isinstance(outcome, Raised):
            self._log_first(outcome.error)
            return CharsCounter().count(cleaned)
        return outcome.value

    def _log_first(self, error: BaseException) -> None:
        """Log only the first failure, because a broken counter fails for every message."""
        if not self._has_failed:
            self._has_failed = True
            log.warning(
                "token counter of plugin failed, tokens estimated", counter=self.name, error=type(error).__name__
            )


def import_counter(name: str) -> PluginCounter:
    """Return the counter `name`, tried on short, empty and long texts.

    Raises SettingInvalid if it cannot be imported or called, raises, returns no count or takes too long.
    """
    function = import_plugin(name, kind="token counter")
    if not callable(function):
        raise SettingInvalid(f"token counter {name!r} is no function: it must take a text and return an int")
    trial = PluginCall(lambda: [_count(function, text) for text in TRIAL_TEXTS], lambda _: None)
    outcome = trial.wait(TRIAL_SECONDS)
    if isinstance(outcome, Raised):
        raise SettingInvalid(f"token counter {name!r} {_problem(outcome.error)}")
    return PluginCounter(name, function)


class _NoCount(Exception):
    """Raised for a return value that is no number of tokens."""


def _count(function: Callable[[str], object], text: str) -> int:
    value = function(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _NoCount(f"returned {repr(value)[:60]}")
    return value


def _problem(error: BaseException) -> str:
    match error:
        case ThreadLimitReached():
            return f"could not be tried: {error}"
        case _NoCount():
            found = str(error)
        case PluginTimedOut():
            found = "takes too long"
        case _:
            found = f"raised {type(error).__name__}"
    return f"{found}: it must take a text and return an int of 0 or more"
