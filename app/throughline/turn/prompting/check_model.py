"""One real call of an agent's model, made for the command `throughline models check`.

No session and no database is involved. The tool that the model is asked to call is never run.
"""

from dataclasses import replace

from throughline.agents.definition import AgentDefinition
from throughline.context.budget import make_budget
from throughline.context.measure import count_prompt, count_tool_specs
from throughline.domain.clock import Clock
from throughline.domain.errors import ModelInvalidRequest, ThroughlineError
from throughline.domain.message import Role
from throughline.domain.model_window import CheckedCall, CheckedModel, ModelCheck, ToolUse
from throughline.domain.prompt import (
    AnswerComplete,
    ModelRequest,
    Prompt,
    PromptMessage,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from throughline.ports.models import ChatModel, TokenCounter
from throughline.turn.prompting.agent_windows import configured_window

MOST_OUTPUT_TOKENS = 2048
"""Most tokens of the answer: enough for a model that thinks before it writes."""

SYSTEM = "You help to check a connection. Do exactly what you are asked, briefly."
ASKED = (
    "The harbour office keeps a list of every ship that comes in after dark: its name, its flag, the cargo, and the "
    "hour at which the pilot went on board. On Tuesday, 14 January, three ships were written down, with 1,250, 310 and "
    "47 tonnes of grain. First write one sentence of about twenty words that says how much grain came in that night. "
    "Then call the tool note_result once, with the number of tonnes."
)
TOOL = ToolSpec(
    "note_result",
    "Take note of a result. The call has no effect.",
    {"type": "object", "properties": {"tonnes": {"type": "integer"}}, "required": ["tonnes"]},
)
NO_CALL = CheckedCall(0, Usage(), None, 0.0, 0, 0, "", ToolUse.NOT_CALLED)


async def check_model(model: ChatModel, counter: TokenCounter, definition: AgentDefinition, clock: Clock) -> ModelCheck:
    """Ask the model's server for the window, call the model once, and return what was measured.

    If the call fails, the result holds the error's text. If the request with a tool is called invalid, the model is
    called again without one: the tool may be the reason.
    """
    await model.ask_window()
    checked = CheckedModel(
        agent=definition.name,
        model=model.name,
        address=model.address,
        window=configured_window(definition, model),
        model_window=model.window,
        counter=counter.name,
        has_tools=bool(definition.tools),
        summary_seconds=None if definition.context.summary.model else definition.context.summary.timeout_seconds,
    )
    reserve = make_budget(definition.context, checked.window.tokens).reserve_tokens
    request = ModelRequest(
        prompt=Prompt(SYSTEM, (PromptMessage(Role.USER, ASKED),)),
        tools=(TOOL,),
        max_output_tokens=min(reserve, MOST_OUTPUT_TOKENS),
        parameters=definition.parameters,
    )
    try:
        return ModelCheck(checked, await _call(model, counter, request, clock))
    except ModelInvalidRequest as refusal:
        return await _check_without_tools(model, counter, replace(request, tools=()), clock, (checked, refusal))
    except ThroughlineError as error:
        return ModelCheck(checked, None, error.detail)


async def _check_without_tools(
    model: ChatModel,
    counter: TokenCounter,
    request: ModelRequest,
    clock: Clock,
    refused: tuple[CheckedModel, ModelInvalidRequest],
) -> ModelCheck:
    checked, refusal = refused
    try:
        call = await _call(model, counter, request, clock)
    except ThroughlineError as error:
        return ModelCheck(checked, None, error.detail)
    return ModelCheck(checked, replace(call, tools=ToolUse.REFUSED, refusal=refusal.detail))


async def _call(model: ChatModel, counter: TokenCounter, request: ModelRequest, clock: Clock) -> CheckedCall:
    counted = count_prompt(request.prompt, count_tool_specs(request.tools, counter.count), counter.count)
    began, times, call = clock.monotonic(), list[float](), replace(NO_CALL, counted_tokens=counted)
    async for event in model.stream(request):
        if isinstance(event, ToolCallDelta):
            continue
        if not isinstance(event, AnswerComplete):
            times.append(clock.monotonic())
            continue
        call = replace(
            call,
            usage=event.usage,
            text_tokens=counter.count(event.text),
            finish_reason=event.finish_reason,
            tools=ToolUse.CALLED if event.tool_calls else ToolUse.NOT_CALLED,
        )
    if not times:
        return call
    return replace(call, first_text_seconds=times[0] - began, text_seconds=times[-1] - times[0], pieces=len(times))
