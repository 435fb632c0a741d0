"""Real turns of a scripted model behind an interface: each that is submitted or resumed is played, as by a worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fakes.stage import CLAIMER, Stage
from throughline.domain.run import Submission, Submitted
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.apply_overrides import RequestChecker
from throughline.turn.take_turn import take_turn


@contextlib.asynccontextmanager
async def played(turns: Stage, claims: asyncio.Lock | None = None) -> AsyncIterator[dict[str, object]]:
    """Play turns inside the block; yield the services by which the interface finds agents and checks requests.

    A turn that is submitted begins at once if the session is free. No queued one does while a test holds `claims`.
    """
    parts = turns.dependencies
    checker = RequestChecker(parts.agents, parts.models, parts.tools)
    begun: set[asyncio.Task[None]] = set()

    async def submit(submission: Submission) -> Submitted:
        submitted = await turns.database.runs.submit(submission, CLAIMER)
        if submitted.claimed is not None:
            task = asyncio.create_task(take_turn(turns.turn_start(submitted.claimed)))
            begun.add(task)
            task.add_done_callback(begun.discard)
        return submitted

    claiming = asyncio.create_task(_claim_turns(turns, claims or asyncio.Lock()))
    try:
        yield {"agents": parts.agents, "submit": submit, "check_input_for": checker.check}
    finally:
        claiming.cancel()
        await asyncio.gather(claiming, *begun, return_exceptions=True)


async def _claim_turns(turns: Stage, claims: asyncio.Lock) -> None:
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
