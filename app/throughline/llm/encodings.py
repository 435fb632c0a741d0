"""tiktoken encodings from the vocabularies that this package ships: without network, cache folder or environment."""

import base64
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

import tiktoken

from throughline.domain.errors import SettingInvalid

VOCABULARIES = Path(__file__).parent / "vocabularies"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One shipped vocabulary. `pattern` splits a text into the pieces that are encoded one by one."""

    name: str
    sha256: str
    pattern: str


# Both patterns are tiktoken's own (tiktoken_ext/openai_public.py).
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_O200K_PIECES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)
O200K_PATTERN = "|".join(_O200K_PIECES)

SHIPPED = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", CL100K_PATTERN),
        Vocabulary("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", O200K_PATTERN),
    )
}


@functools.cache
def load_encoding(name: str) -> tiktoken.Encoding:
    """Return the encoding, built once per process (a third of a second of CPU the first time).

    It has no special tokens; text that looks like one is encoded as plain text. Raises SettingInvalid for an encoding
    that is not shipped, or a vocabulary file that is missing or changed.
    """
    vocabulary = SHIPPED.get(name)
    if vocabulary is None:
        raise SettingInvalid(f"unknown token encoding {name!r}: use one of {', '.join(sorted(SHIPPED))}")
    return tiktoken.Encoding(
        name, pat_str=vocabulary.pattern, mergeable_ranks=_read_ranks(vocabulary), special_tokens={}
    )


def _read_ranks(vocabulary: Vocabulary) -> dict[bytes, int]:
    path = VOCABULARIES / f"{vocabulary.name}.tiktoken"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingInvalid(f"the vocabulary {path.name} cannot be read: install the package again") from error
    if hashlib.sha256(data).hexdigest() != vocabulary.sha256:
        raise SettingInvalid(f"the vocabulary {path.name} was changed: install the package again")
    pairs = (line.split() for line in data.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}
