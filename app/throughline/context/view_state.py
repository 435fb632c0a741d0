"""The view state: what the stages have already done to a session's view, kept with the session.

A stage only moves it forward; between stages it is replayed as it stands, so that each prompt begins with the bytes of
the one before. Everything in it is in positions and in our own counts: a replay never depends on a model's factor.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from throughline.domain.json_types import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class ViewState:
    """What has been done to the view. 0 (None, ()) everywhere: nothing yet.

    `stage` names the stage that set it last, COMPACTED or one of the last stages. `model` is the calibration key of the
    model the state was made for, `factor` the factor in force since the last stage. Tool outputs up to
    `pruned_through_position` are shown as stubs; `keep_last` is how many were kept whole then. Of `truncations`
    (position, tokens), ordered by position, each says in how many tokens the messages up to there are shown at most,
    but for those that an earlier one reaches. Messages up to `trimmed_through_position`, and those in the `left_out`
    ranges, are not shown; each range of `folded` is shown as one short text. Ranges are inclusive. The summary is shown
    in at most `summary_to_tokens` (0: not at all), each pinned message in `pins_to_tokens`, and of the user's own texts
    those in `user_cuts` (position, tokens) in so many tokens; PENDING is the position of the one that is not stored
    yet. `without_notes`: there was no room even for the notes that stand for what is not shown; `without_pins`: nor for
    pinned messages, cut as short as can be, which are treated as all others are. `compacted_to_tokens` is what the
    prompt took, by our count, after the last compaction or stage of a strategy; `skipped_through_position` is the
    newest message when a summary was last not worth writing. `restored_at_position` is the newest message when the
    summary in use was restored, 0 where it was not. `summary_position` is the cursor of the summary that all this was
    done beside, None where that was not noted.
    """

    stage: str = ""
    model: str = ""
    factor: float | None = None
    pruned_through_position: int = 0
    keep_last: int | None = None
    truncations: tuple[tuple[int, int], ...] = ()
    trimmed_through_position: int = 0
    left_out: tuple[tuple[int, int], ...] = ()
    folded: tuple[tuple[int, int], ...] = ()
    summary_to_tokens: int | None = None
    pins_to_tokens: int | None = None
    user_cuts: tuple[tuple[int, int], ...] = ()
    without_notes: bool = False
    without_pins: bool = False
    compacted_to_tokens: int | None = None
    skipped_through_position: int = 0
    summary_position: int | None = None
    restored_at_position: int = 0

    def is_left_out(self, position: int) -> bool:
        """Whether the message there is not shown."""
        if position <= self.trimmed_through_position:
            return True
        return range_at(self.left_out, position) is not None

    @property
    def truncated_through_position(self) -> int:
        """The newest position that a truncation reaches, 0 where none was done."""
        return self.truncations[-1][0] if self.truncations else 0

    def truncated_to(self, position: int) -> int | None:
        """Return in how many tokens the message there is shown at most, None where it was not truncated."""
        index = bisect_left(self.truncations, (position, 0))
        return self.truncations[index][1] if index < len(self.truncations) else None


NEW_VIEW = ViewState()
PENDING = -1
"""In place of a position: the user's message that is not stored yet."""

COMPACTED = "compacted"

_PAIRS = ("truncations", "left_out", "folded", "user_cuts")


def range_at(ranges: tuple[tuple[int, int], ...], position: int) -> tuple[int, int] | None:
    """Return which of the ranges, ordered and apart from each other, holds the position."""
    index = bisect_left(ranges, (position + 1, 0)) - 1
    return ranges[index] if index >= 0 and position <= ranges[index][1] else None


def after_compaction(state: ViewState, tokens: int | None) -> ViewState:
    """Return the state once a further summary is in use and the prompt takes `tokens` (None where nobody measured).

    What was done to the old summary is over; what was done to messages that are still shown stays done.
    """
    return replace(
        state,
        stage=COMPACTED,
        summary_to_tokens=None,
        pins_to_tokens=None,
        without_notes=False,
        without_pins=False,
        compacted_to_tokens=tokens,
        restored_at_position=0,
    )


def truncated(state: ViewState, through: int, tokens: int) -> ViewState:
    """Return the state that shows each message up to `through` in at most so many tokens.

    What was shown in fewer stays so; it says nothing of messages that came later.
    """
    pairs: list[tuple[int, int]] = []
    for end in sorted({through, *(end for end, _ in state.truncations)}):
        levels = (state.truncated_to(end), tokens if end <= through else None)
        least = min(level for level in levels if level is not None)
        if pairs and pairs[-1][1] == least:
            pairs.pop()
        pairs.append((end, least))
    return replace(state, truncations=tuple(pairs))


def view_state_json(state: ViewState) -> JsonObject:
    """Return what is stored: only what differs from a new view."""
    found: dict[str, JsonValue] = {}
    for field in fields(ViewState):
        value = getattr(state, field.name)
        if value != field.default:
            found[field.name] = [list(pair) for pair in value] if field.name in _PAIRS else value
    return found


def view_state_from(stored: Mapping[str, JsonValue]) -> ViewState:
    """Read a stored view state. What a newer version wrote and this one does not know is left aside."""
    stored = _from_older_version(stored)
    known = {field.name: stored[field.name] for field in fields(ViewState) if field.name in stored}
    for name in _PAIRS:
        ranges = known.get(name)
        if isinstance(ranges, list):
            known[name] = tuple((int(pair[0]), int(pair[1])) for pair in ranges)  # type: ignore[arg-type,assignment,index]  # ours
    return ViewState(**known)  # type: ignore[arg-type]  # our own JSON, checked by the round-trip property


def _from_older_version(stored: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the stored state in today's form: older versions wrote `rung` for `stage`, and one truncation for all."""
    if "rung" in stored:
        stored = {**stored, "stage": stored["rung"]}
    through = stored.get("truncated_through_position")
    if not through or "truncations" in stored:
        return stored
    return {**stored, "truncations": [[through, stored.get("truncated_to_tokens", 0)]]}
