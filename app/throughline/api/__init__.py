"""The REST interface, with server-sent events."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:API")
