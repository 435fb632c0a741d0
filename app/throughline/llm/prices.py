"""Prices of models, and what a call costs by them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from throughline.domain.errors import SettingInvalid
from throughline.domain.prompt import Usage
from throughline.llm.providers import ModelName

PER_TOKENS = 1_000_000
KNOWN_NAMES = 1_000
Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=16, decimal_places=9, allow_inf_nan=False)]


class ModelPrice(BaseModel):
    """Prices of one model in US dollars per million tokens.

    Tokens read from the provider's cache and written to it cost as much as other input if they have no price.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Price
    output: Price = Decimal()
    cached_input: Price | None = None
    cache_write: Price | None = None

    def cost(self, usage: Usage) -> Decimal | None:
        """Return the cost in US dollars; None if the provider did not report the tokens."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        plain = max(usage.input_tokens - read - written, 0)
        read_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        dollars = plain * self.input + read * read_price + written * write_price + usage.output_tokens * self.output
        return dollars / PER_TOKENS


_FILE = TypeAdapter(dict[str, ModelPrice])


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of all models. `own` are the operator's, which win over those that genai-prices ships.

    Their keys are names of models, with or without the provider. A model without a known price has none, not 0.
    """

    own: Mapping[str, ModelPrice] = field(default_factory=dict)

    def cost(self, model: ModelName, address: str, usage: Usage) -> Decimal | None:
        """Return the cost of a call in US dollars; None if the price or the tokens are unknown.

        `address` is the server's, '' for the provider's own: another server has other prices for the same name.
        """
        own = self.own.get(model.full) or self.own.get(model.model)
        return own.cost(usage) if own is not None else _listed_cost(model, address, usage)


NO_OWN_PRICES = Prices()


def read_prices(path: Path | None) -> Prices:
    """Return the prices with those of the operator's YAML file. Raises SettingInvalid if the file is not valid."""
    if path is None:
        return NO_OWN_PRICES
    try:
        return Prices(_FILE.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")) or {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise SettingInvalid(f"PRICES_FILE {path}: {where}: {first['msg']}, is {first['input']!r}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # a date such as 2024-99-99
        raise SettingInvalid(f"PRICES_FILE {path} cannot be read: {error}") from error


def _listed_cost(model: ModelName, address: str, usage: Usage) -> Decimal | None:
    """Return the cost by the package's table; None if it does not know the model or the server."""
    names = (model.provider.name, model.model, address)
    if usage.input_tokens is None or usage.output_tokens is None or not _is_listed(*names):
        return None
    return _price(usage, *names)


@lru_cache(maxsize=KNOWN_NAMES)
def _is_listed(provider: str, model: str, address: str) -> bool:
    """Return whether the package's table has the model; it searches all names each time for one that it lacks."""
    return _price(Usage(0, 0), provider, model, address) is not None


def _price(usage: Usage, provider: str, model: str, address: str) -> Decimal | None:
    import genai_prices  # noqa: PLC0415  # its table takes half a second to load

    priced = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
    )
    try:
        if address:
            return genai_prices.calc_price(priced, model, provider_api_url=address).total_price
        return genai_prices.calc_price(priced, model, provider_id=provider).total_price
    except (LookupError, ValueError):  # ValueError: more cached tokens than tokens, as some servers report them
        return None
