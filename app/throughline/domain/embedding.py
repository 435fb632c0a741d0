"""Embeddings: vectors for texts; texts of similar meaning get vectors that are close to each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from throughline.domain.prompt import Usage

Vector: TypeAlias = tuple[float, ...]

MAX_DIMENSIONS = 16_000
"""The most dimensions that pgvector can store."""


@dataclass(frozen=True, slots=True)
class VectorKind:
    """Model and dimensions, which must be equal for vectors to be comparable."""

    model: str
    dimensions: int


class Embedder(Protocol):
    """An embedding model. Only vectors of the same `model` and the same length can be compared."""

    @property
    def model(self) -> str:
        """The model's full name, `provider:model`; vectors are stored under it."""

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return one vector for each text, in the order of the texts, all of one length.

        Of one text beyond the model's input limit the beginning is embedded. Raises the errors of models, see
        domain/errors.py, and ContextOverflow if one of several texts is too long.
        """

    async def usage_of(self, texts: Sequence[str]) -> Usage:
        """Return the tokens of the texts by the service's own count, which is no provider's report, and their cost."""
