"""The AI SDK's interface: `useChat` and `DefaultChatTransport` talk to the agents of this service unchanged."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:AI_SDK")
