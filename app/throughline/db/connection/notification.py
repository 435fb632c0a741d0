"""The payloads of PostgreSQL notifications between processes: their contents, and how they are encoded."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from throughline.domain.ids import RunId

CHANNEL = "throughline"
IDS_PER_PAYLOAD = 200
"""Most run ids in a payload: PostgreSQL allows payloads of up to 7,999 bytes, and an id takes 33."""


@dataclass(frozen=True, slots=True)
class Notification:
    """The changes that one notification reports.

    `events`: runs with new events. `ends`: the runs among `events` that may have ended or were erased; processes of
    earlier versions do not send this. `cancels`: runs that must stop. `has_work`: a run waits for a worker. `has_jobs`:
    a side job was queued; only a trigger of the jobs table sends this.
    """

    events: frozenset[RunId] = frozenset()
    cancels: frozenset[RunId] = frozenset()
    has_work: bool = False
    ends: frozenset[RunId] = frozenset()
    has_jobs: bool = False


def write_payloads(notification: Notification) -> tuple[str, ...]:
    """Return the payloads for a notification, of the form `e:<hex>,<hex>`, `d:<hex>` (done), `c:<hex>` and `w:`.

    `has_jobs` has no payload here: the database trigger sends it as `j:`.
    """
    payloads = [f"e:{chunk}" for chunk in _chunks(notification.events)]
    payloads += [f"d:{chunk}" for chunk in _chunks(notification.ends)]
    payloads += [f"c:{chunk}" for chunk in _chunks(notification.cancels)]
    return (*payloads, "w:") if notification.has_work else tuple(payloads)


def read_payload(payload: str) -> Notification:
    """Return the notification in a payload; an empty one if the payload has another format."""
    kind, _, ids = payload.partition(":")
    try:
        run_ids = frozenset(RunId(UUID(hex=run_id)) for run_id in ids.split(",") if run_id)
    except ValueError:
        return Notification()
    meanings = {
        "e": Notification(events=run_ids),
        "d": Notification(ends=run_ids),
        "c": Notification(cancels=run_ids),
        "w": Notification(has_work=True),
        "j": Notification(has_jobs=True),
    }
    return meanings.get(kind, Notification())


def _chunks(run_ids: Iterable[RunId]) -> Iterator[str]:
    names = sorted(run_id.hex for run_id in run_ids)
    for start in range(0, len(names), IDS_PER_PAYLOAD):
        yield ",".join(names[start : start + IDS_PER_PAYLOAD])
