"""Length check of idempotency keys and the error for a reused key; repositories detect the reuse."""

from throughline.domain.errors import IdempotencyKeyReused, InvalidInput

MAX_KEY_LENGTH = 255


def check_key(key: str | None) -> str | None:
    """Return the idempotency key unchanged, None if there is none. Raises InvalidInput if it is empty or too long."""
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(
            f"An idempotency key has 1 to {MAX_KEY_LENGTH} characters, not {len(key)}.", field="Idempotency-Key"
        )
    return key


def key_reused(key: str | None) -> IdempotencyKeyReused:
    """Return the error for a key that was used with another request body before."""
    return IdempotencyKeyReused(
        f"The idempotency key {key!r} was used before with another request. Use a new key for a new request."
    )
