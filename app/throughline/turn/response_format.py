"""The check of a turn's answer against the response format of its request."""

import json

from throughline.domain.errors import AnswerNotInFormat, InvalidInput
from throughline.domain.overrides import ResponseFormat
from throughline.domain.prompt import AnswerComplete
from throughline.domain.run import RunError
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.json_schema import SchemaInvalid, check_schema, find_misfit
from throughline.prompting.ready_agent import ReadyAgent

SCHEMA_FIELD = "overrides.response_format.json_schema.schema"


async def check_response_format(wanted: ResponseFormat) -> None:
    """Raise InvalidInput unless answers can be checked against the schema."""
    try:
        await run_off_loop_if_large(len(json.dumps(wanted.schema)), lambda: check_schema(wanted.schema), large=2_000)
    except SchemaInvalid as error:
        raise InvalidInput(f"The JSON schema {error}.", field=SCHEMA_FIELD) from error


async def misfit_of(agent: ReadyAgent, step: AnswerComplete) -> str:
    """Return why the answer does not fit the turn's response format; '' if it fits, or the turn has none."""
    wanted = agent.definition.response_format
    if wanted is None:
        return ""
    misfit = await _find_misfit(wanted, step.text)
    if misfit and step.is_cut:
        return f"it was cut off at {agent.budget.reserve_tokens:,} tokens (context.response_reserve); {misfit}"
    return misfit


def not_in_format(misfit: str) -> RunError:
    """Return the error of a run whose second answer does not fit either."""
    return RunError(
        AnswerNotInFormat.code,
        f"The model was asked twice and did not answer in the response format: {misfit}. Its last answer is kept. "
        "Send the message again, perhaps with a simpler schema or another model.",
    )


async def _find_misfit(wanted: ResponseFormat, text: str) -> str:
    """Check the text in a thread, because the time depends on the client's schema, too."""
    return await run_off_loop_if_large(1, lambda: find_misfit(wanted.schema, text), large=0)
