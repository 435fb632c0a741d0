"""What the next message would set off, asked before it is sent: for POST …/context/preview."""

from app.context.preview import preview_json
from app.domain.json_types import JsonObject
from app.domain.message import Content, NewMessage, Role, Source
from app.domain.session import Session
from app.domain.text import clean_content
from app.execution.off_loop import run_off_loop_if_large
from app.prompting.conversation import at_rest
from app.prompting.planning import characters_planned, context_input, count_new
from app.prompting.ready_agent import PromptParts


async def preview_context(parts: PromptParts, session: Session, content: Content) -> JsonObject:
    """Return the plan for the first model call of a turn that would begin with `content`; nothing is changed.

    Raises NotFound where the session's agent is gone, PromptCannotFit where no prompt would fit.
    """
    agent, conversation = await at_rest(parts, session)
    message = NewMessage(role=Role.USER, content=clean_content(content), source=Source.API)
    inp = context_input(agent, conversation, await count_new(message, agent.counter))
    return await run_off_loop_if_large(characters_planned(inp), lambda: preview_json(inp))
