"""A played server whose tool asks a person for the size before something is bought."""

from dataclasses import replace

from fakes.stage import AGENT
from fakes.tool_servers import PlayedServers, served
from throughline.domain.elicitation import Elicitation, InputRequest
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import ServedCall, ToolServer

SHOP = ToolServer("shop", ("shop",))
BUY = ToolCall("call_1", "shop__buy", "{}")
BUY_MORE = ToolCall("call_2", "shop__buy", '{"more": 1}')
BUYS = replace(AGENT, tools=(), mcp_servers=(SHOP,))
SIZE = InputRequest("size", "Which size?", {"properties": {"size": {"type": "integer", "minimum": 36}}})


def shop(questions: int = 1) -> PlayedServers:
    """Return the server whose tool asks so many questions before something is bought."""

    def buy(call: ServedCall) -> ToolOutcome | Elicitation:
        given = call.elicitation.answers
        return ToolOutcome("bought") if len(given) == questions else Elicitation((SIZE,), earlier=given)

    return PlayedServers({"shop": [served(SHOP, "buy")]}, buy)
