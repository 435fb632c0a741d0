"""Embeddings: texts as vectors, near each other where they mean the same."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

Vector: TypeAlias = tuple[float, ...]

MAX_DIMENSIONS = 16_000
"""What pgvector stores at most."""


class Embedder(Protocol):
    """Makes vectors out of texts. Those of one `model` and one length can be compared, and no others."""

    @property
    def model(self) -> str:
        """The model's full name, `provider:model`; vectors are stored under it."""

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return a vector for each text, in their order, all of one length.

        What a model cannot read of a long text is left out. Raises what models raise, see domain/errors.py.
        """
