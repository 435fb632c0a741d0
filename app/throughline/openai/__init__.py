"""OpenAI's interface: its official clients work with the agents of this service unchanged."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:OPENAI_API")
