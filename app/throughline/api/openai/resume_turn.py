"""Continuation of a waiting turn by a request in OpenAI's form."""

from collections.abc import Sequence
from dataclasses import replace

from throughline.api.http.admitted_request import Call
from throughline.api.openai.follow_part import FollowedPart
from throughline.domain.run import Run, RunInput
from throughline.domain.waiting import Resolution


async def resume_turn(call: Call, run: Run, given: Sequence[Resolution], changed: RunInput) -> FollowedPart:
    """Give the waiting run what it waits for, and return its next part.

    The run's overrides, tools and echo become those of `changed`. Without tools in the request the run keeps those that
    it has, because the model has called them. Raises InvalidInput, RunNotWaiting.
    """
    kept = run.input
    tools = changed.client_tools or kept.client_tools
    new = replace(kept, overrides=changed.overrides, client_tools=tools, echo=changed.echo)
    await call.services.check_input_for(run.agent, new)
    resumed = await call.services.database.runs.resume(call.owner_id, run.id, given, new)
    if resumed.is_repeated:
        return FollowedPart(resumed.run, skipped_waits=run.wait_count)
    return FollowedPart(resumed.run, after=resumed.last_seq)
