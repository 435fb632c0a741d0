"""Import of plugins by their name `module:attribute`."""

import importlib
from types import ModuleType

from throughline.domain.errors import SettingInvalid
from throughline.execution.outcome import Raised, Returned, outcome_of


def import_plugin(path: str, *, kind: str) -> object:
    """Return the attribute named by `module:attribute`. Raises SettingInvalid, which says which half is wrong.

    `kind` names the plugin's purpose; the error text begins with it.
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
        case Raised(ModuleNotFoundError() as error):
            raise SettingInvalid(
                f"{origin}: there is no module {error.name!r}; install it beside this service or put its folder "
                "into PYTHONPATH"
            ) from error
        case Raised(error):
            raise SettingInvalid(
                f"{origin}: importing {module_name} failed with {type(error).__name__}: {error}"
            ) from error
