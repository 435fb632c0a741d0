"""Many senders on one session at once, through two servers and two workers: one line, no overlap, nothing lost."""

import asyncio
from collections import defaultdict

from chaos.calls import check_calls, read_calls
from chaos.check import check
from chaos.client import Client, open_client
from chaos.client_log import Sent
from chaos.cluster import open_cluster, servers
from chaos.findings import Fault, Finding
from chaos.grounds import Grounds, open_grounds
from chaos.messages import Name, name_in, text_of
from chaos.quiet import until_quiet
from chaos.report import Report
from chaos.stored import Stored, read_stored

TURN_SECONDS = 0.05
QUIET_SECONDS = 120.0
ROLES = (("serve", "--no-worker"), ("serve", "--no-worker"), ("worker",), ("worker",))


async def run_senders(*, senders: int, rounds: int) -> tuple[Report, ...]:
    """Let `senders` clients send one message each to one session at the same moment; `rounds` sessions."""
    async with open_grounds() as grounds:
        return (await play_senders(grounds, senders=senders, rounds=rounds),)


async def play_senders(grounds: Grounds, *, senders: int, rounds: int) -> Report:
    """Do it on these grounds."""
    settings = {"MAX_QUEUED_PER_SESSION": str(senders)}
    async with open_cluster(grounds, *ROLES, settings=settings) as nodes, open_client(servers(nodes)) as client:
        for number in range(rounds):
            await _send_all(client, f"many-{number}", senders)
            await until_quiet(grounds.database_url, seconds=QUIET_SECONDS)
    stored = await read_stored(grounds.database_url)
    calls = read_calls(grounds.calls_log)
    findings = [
        *check(client.log, stored),
        *check_calls(calls, accepted_order(stored)),
        *_all_accepted(client.log),
    ]
    counts = {
        "senders": senders,
        "sessions": rounds,
        "messages": len(client.log),
        "model calls": len(calls),
        "resumed runs": sum(run.attempt > 1 for run in stored.runs),
    }
    return Report("senders", counts, tuple(findings))


def accepted_order(stored: Stored) -> dict[str, list[str]]:
    """Return the names of the messages of each conversation in the order their runs were accepted."""
    texts = {message.run_id: message.content for message in stored.messages if message.role == "user"}
    order: defaultdict[str, list[str]] = defaultdict(list)
    for run in sorted(stored.runs, key=lambda run: run.seq):
        name = name_in(texts.get(run.id, ""))
        if name is not None:
            order[f"chaos:{name.conversation}"].append(str(name))
    return dict(order)


async def _send_all(client: Client, conversation: str, senders: int) -> None:
    session = await client.new_session("plain", key=conversation)
    names = [Name(conversation, number) for number in range(1, senders + 1)]
    sents = [Sent(session, str(name), text_of(name, slow_seconds=TURN_SECONDS)) for name in names]
    await asyncio.gather(*(client.submit(sent) for sent in sents))


def _all_accepted(log: list[Sent]) -> list[Finding]:
    return [Finding(Fault.FAILED, f"{s.text[:30]!r}: {s.refusals}") for s in log if s.refusals or not s.is_accepted]
