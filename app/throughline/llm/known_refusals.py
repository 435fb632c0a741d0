"""Search of the tables of known refusals, which `classify_error.py` uses before its general rules."""

from throughline.llm.known_refusal import KnownRefusal
from throughline.llm.provider_error import Failure
from throughline.llm.provider_refusals import PROVIDER_REFUSALS
from throughline.llm.server_refusals import SERVER_REFUSALS

KNOWN_REFUSALS: tuple[KnownRefusal, ...] = (*PROVIDER_REFUSALS, *SERVER_REFUSALS)
"""All known refusals. The first that fits decides; the more special texts of providers come first."""


def find_refusal(failure: Failure) -> KnownRefusal | None:
    """Return the first known refusal that matches the failure, None if none does."""
    return next((known for known in KNOWN_REFUSALS if known.fits(failure)), None)
