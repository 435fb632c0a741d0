"""LangGraph's HTTP interface: its SDKs, `RemoteGraph` and `useStream` work with the agents of this service."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:LANGGRAPH_API")
