"""The console: pages for browsers, on which people chat, see what a prompt is made of, and look after the service."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:CONSOLE", settings="settings:ConsoleSettings")
