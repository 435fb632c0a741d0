"""Finds what an agent file names as `module:attribute`."""

import importlib

from app.domain.errors import SettingInvalid


def import_attribute(path: str) -> object:
    """Return the attribute of `module:attribute`. Raises SettingInvalid saying which half is wrong."""
    module_name, _, attribute = path.partition(":")
    module = _import_module(path, module_name)
    try:
        found: object = getattr(module, attribute)
    except AttributeError as error:
        raise SettingInvalid(f"tool {path!r}: the module {module_name} has no attribute {attribute!r}") from error
    return found


def _import_module(path: str, module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SettingInvalid(
            f"tool {path!r}: there is no module {error.name!r}; install it beside this service or put its folder "
            "into PYTHONPATH"
        ) from error
    except Exception as error:  # the operator's module may fail in any way while it is imported
        raise SettingInvalid(
            f"tool {path!r}: importing {module_name} failed with {type(error).__name__}: {error}"
        ) from error
