"""Import of plugins by their name `module:attribute`."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from throughline.domain.errors import SettingInvalid
from throughline.domain.exception_causes import class_and_text, only_cause_of
from throughline.execution.outcome import Raised, Returned, outcome_of


def add_plugin_folder(folder: Path) -> None:
    """Let plugins be imported from the folder. It comes last, so that no file in it can replace an installed module."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def import_plugin(path: str, *, kind: str) -> object:
    """Import the plugin named by `path`, which is `module:attribute`, and return that attribute.

    Raises SettingInvalid, which says which half is wrong. `kind` names the plugin's purpose; the error text begins with
    it.
    """
    module_name, _, attribute = path.partition(":")
    module = _import_module(f"{kind} {path!r}", module_name)
    try:
        found: object = getattr(module, attribute)
    except AttributeError as error:
        raise SettingInvalid(f"{kind} {path!r}: the module {module_name} has no attribute {attribute!r}") from error
    return found


def _import_module(origin: str, module_name: str) -> ModuleType:
    match outcome_of(lambda: importlib.import_module(module_name)):
        case Returned(module):
            return module
        case Raised(error):
            raise _import_failed(origin, module_name, only_cause_of(error)) from error


def _import_failed(origin: str, module_name: str, error: BaseException) -> SettingInvalid:
    match error:
        case ModuleNotFoundError():
            return SettingInvalid(
                f"{origin}: there is no module {error.name!r}; put its file beside the agent files (AGENTS_DIR), "
                "install it beside this service, or put its folder into PYTHONPATH"
            )
        case _:
            return SettingInvalid(f"{origin}: importing {module_name} failed with {class_and_text(error)}")
