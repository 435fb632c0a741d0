"""Translation of exceptions of providers' packages into ours; each package has its own for keys, options and calls."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from throughline.domain.errors import SettingInvalid, ThroughlineError
from throughline.llm.providers import ModelName, Provider

_WORDS = (("specify a region", "REGION"), ("default credentials", "APPLICATION_CREDENTIALS"))
"""Words of packages that name no variable, each with a part of the names of the variables that are missing."""


@contextmanager
def raised_as(translate: Callable[[Exception], ThroughlineError]) -> Generator[None]:
    """Replace an exception of a `with` block by what `translate` returns; a ThroughlineError is not replaced."""
    try:
        yield
    except ThroughlineError:
        raise
    except Exception as error:
        raise translate(error) from error


def as_setting(name: ModelName, advice: str, error: Exception) -> SettingInvalid:
    """Return the error for a model that its package cannot create, which is a mistake in the operator's settings."""
    provider, text = name.provider, str(error)
    said = text.lower()
    if isinstance(error, ImportError):
        return SettingInvalid(
            f"model {name.full!r} needs a package that is not installed: pip install {provider.install}"
        )
    if named := _missing_variables(provider, text):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} lacks what its provider needs: set {' or '.join(named)}{advice}")
    if provider.key_variable and ("key" in said or "credential" in said):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} has no key: set {provider.key_variable}{advice}")
    read = ", ".join(sorted(provider.variables))
    variables = f", and the variables that its package reads: {read}" if read else ""
    return SettingInvalid(
        f"model {name.full!r} cannot be set up ({type(error).__name__}): check its name and options{variables}"
    )


def _missing_variables(provider: Provider, text: str) -> list[str]:
    """Return the provider's variables that the package's error names, or that a known phrase in it means."""
    parts = [part for words, part in _WORDS if words in text]
    return sorted(name for name in provider.variables if name in text or any(part in name for part in parts))
