"""The view state: what the stages have already done to a session's view, kept with the session.

A stage only moves it forward; between stages it is replayed as it stands, so that each prompt begins with the bytes of
the one before. Everything in it is in positions and in our own counts: a replay never depends on a model's factor.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from throughline.domain.basic_types import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class ViewState:
    """What the stages have done to a session's view. In a new view every field is empty: 0, None, '' or ().

    - `stage`: the stage that set the state last, COMPACTED or one of the last stages.
    - `model`: the calibration key of the model that the state was made for; `factor`: the factor in force since the
      last stage.
    - `pruned_through_position`: tool outputs up to it are shown as stubs. `keep_last`: how many were kept whole then.
    - `truncations`: pairs (position, tokens) in the order of positions. Each limits the messages up to its position to
      so many tokens, except those that an earlier pair covers.
    - `trimmed_through_position`: messages up to it are not shown. `left_out`: further ranges of messages not shown.
    - `folded`: ranges of messages, each shown as one short text. All ranges are inclusive.
    - `summary_to_tokens`: most tokens in which the summary is shown, 0 if not at all, None if whole. `pins_to_tokens`:
      the same for each pinned message.
    - `user_cuts`: pairs (position, tokens) for the user's own texts that were cut; PENDING is the position of the text
      that is not stored yet.
    - `without_notes`: the notes that stand for hidden messages are left out, too.
    - `without_pins`: pinned messages are treated like all others, because even cut they did not fit.
    - `compacted_to_tokens`: the size of the prompt, by our count, after the last compaction or stage of a strategy.
    - `skipped_through_position`: the newest message when a summary was last found not worth writing.
    - `restored_at_position`: the newest message when the summary in use was restored, 0 if it was not.
    - `summary_position`: the cursor of the summary that the state was made with, None if that was not noted.
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
        """Return whether the message at `position` is hidden: trimmed or in a range of `left_out`."""
        if position <= self.trimmed_through_position:
            return True
        return range_at(self.left_out, position) is not None

    @property
    def truncated_through_position(self) -> int:
        """The newest position that a truncation covers, 0 without one."""
        return self.truncations[-1][0] if self.truncations else 0

    def truncated_to(self, position: int) -> int | None:
        """Return the most tokens in which the message at `position` is shown; None if no truncation covers it."""
        index = bisect_left(self.truncations, (position, 0))
        return self.truncations[index][1] if index < len(self.truncations) else None


NEW_VIEW = ViewState()
PENDING = -1
"""Stands in place of a position for the user's message that is not stored yet."""

COMPACTED = "compacted"

_PAIRS = ("truncations", "left_out", "folded", "user_cuts")


def range_at(ranges: tuple[tuple[int, int], ...], position: int) -> tuple[int, int] | None:
    """Return the range that contains `position`, None if none does; `ranges` must be in order and must not overlap."""
    index = bisect_left(ranges, (position + 1, 0)) - 1
    return ranges[index] if index >= 0 and position <= ranges[index][1] else None


def after_compaction(state: ViewState, tokens: int | None) -> ViewState:
    """Return the state once a further summary is in use and the prompt takes `tokens` (None if that was not measured).

    Cuts of the old summary, of pins and of notes end. What was done to messages that are still shown stays. What a
    restore let the triggers count from ends with the restore.
    """
    skipped = state.skipped_through_position
    return replace(
        state,
        stage=COMPACTED,
        summary_to_tokens=None,
        pins_to_tokens=None,
        without_notes=False,
        without_pins=False,
        compacted_to_tokens=tokens,
        skipped_through_position=0 if skipped == state.restored_at_position else skipped,
        restored_at_position=0,
    )


def truncated(state: ViewState, through: int, tokens: int) -> ViewState:
    """Return the state in which each message up to `through` is shown in at most `tokens`.

    A lower limit that was set before stays. Messages after `through` keep theirs.
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
    """Return the fields to store: only those that differ from a new view."""
    found: dict[str, JsonValue] = {}
    for field in fields(ViewState):
        value = getattr(state, field.name)
        if value != field.default:
            found[field.name] = [list(pair) for pair in value] if field.name in _PAIRS else value
    return found


def view_state_from(stored: Mapping[str, JsonValue]) -> ViewState:
    """Return the view state from its stored fields; fields that only a newer version of the service has are ignored."""
    known = {field.name: stored[field.name] for field in fields(ViewState) if field.name in stored}
    for name in _PAIRS:
        ranges = known.get(name)
        if isinstance(ranges, list):
            known[name] = tuple((int(pair[0]), int(pair[1])) for pair in ranges)  # type: ignore[arg-type,assignment,index]  # ours
    return ViewState(**known)  # type: ignore[arg-type]  # our own JSON, checked by the round-trip property
