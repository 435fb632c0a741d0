"""AG-UI: front ends that speak this protocol, such as CopilotKit's, use the agents by an address."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:AG_UI")
