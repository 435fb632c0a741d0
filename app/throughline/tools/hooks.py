"""Import of the operators' `pre_compact` hooks, which are called before each compaction."""

import inspect
from contextlib import suppress
from typing import cast

from throughline.domain.errors import SettingInvalid
from throughline.execution.call_plugin import import_plugin
from throughline.ports.hooks import Hook

FIELD = "pre_compact"


class ImportedHooks:
    """Implementation of the `Hooks` port: each hook is imported and checked when it is first needed."""

    def __init__(self) -> None:
        self._found: dict[str, Hook] = {}

    def get(self, name: str) -> Hook:
        """Return the hook `module:function`. Raises SettingInvalid if it cannot be imported or called."""
        if name not in self._found:
            self._found[name] = _check(name, import_plugin(name, kind=FIELD))
        return self._found[name]


def _check(name: str, found: object) -> Hook:
    """Return `found`. Raises SettingInvalid unless it is a function that takes one argument; it is not called."""
    if inspect.isclass(found) or not callable(found):
        raise SettingInvalid(
            f"{FIELD} {name!r}: is not a function; write one that takes the compaction and returns a Decision or None"
        )
    try:
        with suppress(ValueError):  # some functions of compiled modules have no signature
            inspect.signature(found).bind(object())
    except TypeError as error:
        raise SettingInvalid(
            f"{FIELD} {name!r}: must be callable with one argument, the compaction ({error})"
        ) from error
    return cast("Hook", found)  # its return type can be checked only at the call
