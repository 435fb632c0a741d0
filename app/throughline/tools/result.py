"""Conversion of a tool's return value to text for the model: clean, never empty, never above the limit."""

from pydantic import ConfigDict, TypeAdapter

from throughline.domain.text import clean_text, is_blank

NOTHING = "(the tool returned nothing)"
ANY_VALUE: TypeAdapter[object] = TypeAdapter(object, config=ConfigDict(ser_json_inf_nan="strings"))


def result_text(value: object, max_bytes: int) -> str:
    """Return `value` as text of at most `max_bytes`: a str as it is, everything else as JSON.

    NUL and lone surrogates are replaced. Longer text is cut and ends with a remark on that; None and blank text become
    NOTHING. Raises ValueError for a value that JSON cannot represent (circular, bytes that are not UTF-8).
    """
    text = value if isinstance(value, str) else _as_json(value)
    whole = len(text)
    text = clean_text(text[: max_bytes + 1])
    if is_blank(text):
        return NOTHING
    encoded = text.encode()
    if len(encoded) <= max_bytes and len(text) >= whole:
        return text
    marker = f"\n[result cut: it had {whole} characters, more than the {max_bytes} bytes a result may have]"
    return encoded[: max(0, max_bytes - len(marker))].decode(errors="ignore") + marker


def _as_json(value: object) -> str:
    return "" if value is None else ANY_VALUE.dump_json(value, fallback=str).decode()
