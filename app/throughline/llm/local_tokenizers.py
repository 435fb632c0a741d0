"""Hugging Face tokenizers from a local `tokenizer.json`: a path, or a model in the local Hugging Face cache.

Imported only if such a counter is named, because its packages are the optional extra `transformers`. Nothing is ever
downloaded.
"""

from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from tokenizers import Tokenizer

from throughline.domain.errors import SettingInvalid
from throughline.llm.provider_error import raised_as

FILE_NAME = "tokenizer.json"


def load_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer, set to count whole texts and to treat special tokens in them as plain text.

    `name` is a `tokenizer.json`, a folder that contains one, or the name of a model on the Hugging Face Hub whose file
    is in the local cache. Raises SettingInvalid if there is none.
    """
    path = _find(name)
    refusal = SettingInvalid(f"token counter transformers:{name}: {path.name} holds no tokenizer")
    with raised_as(lambda _: refusal):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _find(name: str) -> Path:
    path = Path(name).expanduser()
    found = path / FILE_NAME if path.is_dir() else path
    if found.is_file():
        return found
    cached = _cached(name)
    if cached is None:
        raise SettingInvalid(
            f"token counter transformers:{name}: there is no such file, and no {FILE_NAME} of that model in the local "
            f"Hugging Face cache; fetch it once (hf download {name} {FILE_NAME}) or name the path of a {FILE_NAME}"
        )
    return cached


def _cached(name: str) -> Path | None:
    try:
        found = try_to_load_from_cache(name, FILE_NAME)
    except HFValidationError:  # a path instead of a model's name
        return None
    return Path(found) if isinstance(found, str) else None
