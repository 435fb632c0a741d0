"""Translation of exceptions of providers' packages into ours; each package has its own for keys, options and calls."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from throughline.domain.errors import SettingInvalid, ThroughlineError
from throughline.llm.providers import ModelName


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
    provider, said = name.provider, str(error).lower()
    if isinstance(error, ImportError):
        return SettingInvalid(
            f"model {name.full!r} needs a package that is not installed: pip install {provider.install}"
        )
    if provider.key_variable and ("key" in said or "credential" in said):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} has no key: set {provider.key_variable}{advice}")
    return SettingInvalid(f"model {name.full!r} cannot be set up ({type(error).__name__}): check its name and options")
