"""Real turns of a scripted model behind an interface: each that is submitted or resumed is played, as by a worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fakes.stage import CLAIMER, Stage
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.apply_overrides import RequestChecker
from throughline.turn.take_turn import take_turn


@contextlib.asynccontextmanager
async def played(turns: Stage) -> AsyncIterator[dict[str, object]]:
    """Play turns inside the block; yield the services by which the interface finds agents and checks requests."""
    parts = turns.dependencies
    checker = RequestChecker(parts.agents, parts.models, parts.tools)
    claiming = asyncio.create_task(claim_turns(turns, asyncio.Lock()))
    try:
        yield {"agents": parts.agents, "submit": _submit(turns), "check_input_for": checker.check}
    finally:
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)


def _submit(turns: Stage) -> object:
    return lambda submission: turns.database.runs.submit(submission, None)


async def claim_turns(turns: Stage, claims: asyncio.Lock) -> None:
    """Play the turns of runs that are queued, one after the other, as a worker does.

    None is claimed while a test holds `claims`.
    """
    while True:
        claimed = None
        async with claims:
            with ErrorBoundary(lambda *_args, **_fields: None):
                claimed = await turns.database.runs.claim_next(CLAIMER)
        if claimed is None:
            await asyncio.sleep(0.02)
        else:
            await take_turn(turns.turn_start(claimed))
