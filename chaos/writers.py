"""Writers that go on whatever happens: each talks in a session of its own, one message after the other."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from chaos.client import Client, GaveUp
from chaos.client_log import Sent
from chaos.findings import Fault, Finding
from chaos.messages import Name, text_of

AGENTS = ("plain", "noting", "compacting", "preparing")
SLOWEST_SECONDS = 0.5
LONGEST_WORDS = 200
TIMEOUT_SECONDS = 120.0


@dataclass(slots=True)
class Writers:
    """Some writers under way. `gave_up` are messages that were never answered."""

    client: Client
    gave_up: list[Finding] = field(default_factory=list)
    slowest_seconds: float = 0.0
    _is_over: bool = False

    def stop(self) -> None:
        """Let each get the answer it waits for, and end."""
        self._is_over = True

    async def write(self, number: int, seed: int) -> None:
        """Write until stopped."""
        dice = random.Random(f"{seed}-{number}")
        agent = AGENTS[number % len(AGENTS)]
        conversation = f"writer-{number}"
        session = await self.client.new_session(agent, key=conversation)
        count = 0
        while not self._is_over:
            count += 1
            name = Name(conversation, count)
            text = text_of(
                name,
                uses_tools=agent == "noting" and dice.random() < 0.5,
                slow_seconds=round(dice.uniform(0, SLOWEST_SECONDS), 2),
                words=dice.randrange(1, LONGEST_WORDS),
            )
            await self._send(Sent(session, str(name), text))

    async def _send(self, sent: Sent) -> None:
        try:
            await self.client.send(sent, timeout_seconds=TIMEOUT_SECONDS)
        except GaveUp as error:
            self.gave_up.append(Finding(Fault.STUCK, str(error)))
        if sent.answered_at is not None:
            self.slowest_seconds = max(self.slowest_seconds, sent.answered_at - sent.sent_at)


@asynccontextmanager
async def writing(client: Client, writers: int, seed: int) -> AsyncGenerator[Writers]:
    """Keep writers at work inside the block, and let each end its message at the end of it."""
    crowd = Writers(client)
    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(crowd.write(number, seed))
        try:
            yield crowd
        finally:
            crowd.stop()
