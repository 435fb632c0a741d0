"""Mutants: the engine with one stage or one guard taken out, which the judges of played sessions have to notice.

A mutant is one replacement in one file of the engine, `throughline.context`. It is made in a copy of the package, and
sessions are played against the copy, in a process of its own, until a promise is broken.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "app" / "throughline"
SESSIONS = 6000
"""So many sessions are played before a mutant is said to have survived; nearly all break something in the first 500."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is replaced by what, once, in which file of `throughline.context`.

    `first` is the seed that the search begins with: the first one that is known to show the fault, for a mutant that
    not every session notices. It saves time only; where sessions are drawn in another way now, the search goes on.
    """

    name: str
    file: str
    old: str
    new: str
    first: int = 0


def without_stage(name: str, function: str, first: int = 0) -> Mutant:
    return Mutant(f"no {name}", "compaction/last_stages.py", f'    ("{name}", {function}),\n', "", first)


STAGES = (
    without_stage("user_text_capped", "cap_oversized_user_text", first=7),
    without_stage("summary_shortened", "shorten_summary", first=12),
    without_stage("messages_truncated", "truncate_big_messages", first=13),
    Mutant("no oldest_trimmed", "compaction/last_stages.py", "    (OLDEST_TRIMMED, trim_oldest),\n", ""),
    without_stage("steps_folded", "fold_running_steps", first=27),
    without_stage("messages_squeezed", "squeeze_messages", first=27),
    without_stage("all_steps_folded", "fold_all_steps"),
    without_stage("summary_dropped", "drop_summary", first=18),
    without_stage("pins_truncated", "truncate_pins", first=27),
    without_stage("user_text_truncated", "truncate_user_text", first=18),
    without_stage("notes_dropped", "drop_notes"),
    without_stage("user_text_truncated_hard", "truncate_user_text_hard"),
    without_stage("pins_truncated_hard", "truncate_pins_hard", first=135),
    without_stage("pins_left_out", "leave_out_pins", first=3_008_160),
    Mutant("no prune", "compaction/prune.py", "        (PRUNED, policy.start, policy.keep_last),\n", "", first=591),
    Mutant(
        "no aggressive prune",
        "compaction/prune.py",
        "        (PRUNED_AGGRESSIVELY, policy.aggressive, policy.keep_last_aggressive),\n",
        "",
    ),
    Mutant(
        "no compaction",
        "compaction/decide_compaction.py",
        "            if decision.trigger is not None:\n",
        "            if False:\n",
    ),
    Mutant(
        "no truncation",
        "compaction/strategy.py",
        "Strategy.TRUNCATION: truncate_history",
        "Strategy.TRUNCATION: leave_unchanged",
    ),
    Mutant(
        "no importance",
        "compaction/strategy.py",
        "Strategy.IMPORTANCE: keep_important",
        "Strategy.IMPORTANCE: leave_unchanged",
    ),
)

GUARDS = (
    Mutant("no repair", "view/view.py", "if not is_valid(messages):", "if False:"),
    Mutant("ids used twice", "view/groups.py", "while not unique or unique in used:", "while not unique:"),
    Mutant(
        "missing results stay missing",
        "view/groups.py",
        "            shown.append(missing)\n",
        "            pass\n",
    ),
    Mutant("blank texts are sent", "view/groups.py", "is None and _has_content(message.content)", "is None"),
    Mutant(
        "pins may be trimmed", "view/message_list.py", "return row.position in self.pinned or row is", "return row is"
    ),
    Mutant(
        "pins may be pruned",
        "view/message_list.py",
        "pruned_through_position and row.position not in self.pinned:",
        "pruned_through_position:",
    ),
    Mutant("outputs are pruned before they are seen", "compaction/prune.py", "if position < answered]", "]"),
    Mutant(
        "the user's message goes with its turn",
        "view/message_list.py",
        "row.position in self.pinned or row is self._current_row",
        "row.position in self.pinned",
    ),
    Mutant(
        "messages nobody has read may be left out",
        "compaction/compaction_cut.py",
        "    if context_input.has_gap:\n        least",
        "    if False:\n        least",
    ),
    Mutant(
        "what was not loaded is not read first",
        "compaction/decide_compaction.py",
        "must_load_first=context_input.has_gap",
        "must_load_first=False",
    ),
    Mutant(
        "open calls may be summarised",
        "compaction/compaction_cut.py",
        "    settled = own_start + settled_length(task.rows[own_start:])\n",
        "    settled = len(task.rows)\n",
        first=40,
    ),
    Mutant("groups may be torn", "view/groups.py", "        if reach < index:", "        if index:"),
    Mutant(
        "a prepared cut may tear a group",
        "compaction/decide_compaction.py",
        "or not _is_legal(context_input.rows, through):",
        "or False:",
        first=957,
    ),
    Mutant(
        "prepared summaries that help little",
        "compaction/decide_compaction.py",
        "<= tokens_with_headroom(context_input)",
        "<= 10**9",
        first=40_220,
    ),
    Mutant("too few recent messages", "compaction/compaction_cut.py", " - task.min_recent)", ")"),
    Mutant(
        "no growth between compactions",
        "compaction/compaction_cut.py",
        "    if has_grown(context_input, view.tokens):\n",
        "    if True:\n",
    ),
    Mutant(
        "the new summary counts nothing",
        "compaction/compaction_cut.py",
        "after = rest + (task",
        "after = rest + 0 * (task",
        first=155,
    ),
    Mutant(
        "a restore is undone",
        "compaction/compaction_triggers.py",
        "return restored > 0 and is",
        "return False and is",
        first=130,
    ),
    Mutant("another model's view state", "plan_context.py", "if state.model != context_input.model_key:", "if False:"),
    Mutant(
        "the factor is never taken again",
        "plan_context.py",
        "if frozen is None or not context_input.factor",
        "if frozen is None or not 0",
    ),
    Mutant(
        "prunes are forgotten",
        "view/view_state.py",
        "summary_to_tokens=None,",
        "pruned_through_position=0, summary_to_tokens=None,",
    ),
    Mutant("a cut summary stays cut", "view/view_state.py", "summary_to_tokens=None,", ""),
    Mutant(
        "the refusal's cap is ignored",
        "fit_prompt.py",
        "    if context_input.cap_tokens is not None:\n",
        "    if False:\n",
    ),
    Mutant(
        "other counters are trusted",
        "measure.py",
        "if message.counter == counter_name and message.token_count > 0:",
        "if message.token_count > 0:",
    ),
    Mutant(
        "the notes' tokens are not counted",
        "view/message_list.py",
        "self._append(note, count_message(note, self.context_input.count))",
        "self._append(note, 0)",
    ),
    Mutant(
        "the window's tools are not counted",
        "view/view.py",
        "self.system_tokens + self.context_input.tools_tokens",
        "self.system_tokens",
    ),
    Mutant(
        "the reserve is used",
        "fit_prompt.py",
        "limit = unscale(context_input.budget.budget_tokens",
        "limit = unscale(context_input.budget.window_tokens",
    ),
    Mutant(
        "late results go before their call",
        "compaction/strategy.py",
        "default=0)\n    return replace",
        "default=0) - 1\n    return replace",
    ),
    Mutant(
        "ranges are not kept",
        "compaction/strategy.py",
        "for first, last in view.state.left_out for",
        "for first, last in () for",
    ),
    Mutant(
        "truncation is forgotten",
        "view/message_list.py",
        "elif row is not self._current_row:",
        "elif len(self.messages) % 2 and row is not self._current_row:",
    ),
    Mutant(
        "what was truncated before binds all that comes",
        "compaction/last_stages.py",
        "max(stored), level)",
        "max(stored), min(level, *(tokens for _, tokens in view.state.truncations), level))",
    ),
    Mutant(
        "what was truncated before is shown longer",
        "view/view_state.py",
        "min(level for level in levels if level is not None)",
        "levels[1] or levels[0] or 0",
    ),
    Mutant(
        "the newest messages stay whatever room they leave",
        "compaction/strategy.py",
        "wanted if wanted >= enough",
        "wanted if wanted",
    ),
    Mutant(
        "no growth between stages",
        "compaction/strategy.py",
        "compacted_to_tokens=smaller.tokens",
        "compacted_to_tokens=None",
    ),
    Mutant(
        "folds are kept for ever", "compaction/strategy.py", "in state.folded if pair[1] > hidden", "in state.folded"
    ),
    Mutant("cuts are kept for ever", "compaction/strategy.py", "if cut[0] > hidden or cut[0] in shown", ""),
    Mutant(
        "levels are kept for ever",
        "compaction/strategy.py",
        "in state.truncations if cut[0] > hidden",
        "in state.truncations",
    ),
    Mutant("stages for next to nothing", "compaction/strategy.py", "least = WORTHWHILE_SHARE if", "least = 0 if"),
    Mutant(
        "folds come undone",
        "compaction/last_stages.py",
        "        return (*ranges[:-1], (ranges[-1][0], max(new[1], ranges[-1][1])))\n",
        "        return (*ranges[:-1], new)\n",
    ),
)

MUTANTS = (*STAGES, *GUARDS)


def broken_by(mutant: Mutant, folder: Path, sessions: int = SESSIONS) -> str:
    """Return what the judges say of the mutant, '' where it survives. `folder` is empty and takes the copy."""
    source = mutated(mutant)
    _copy_engine(folder / "throughline")
    (folder / "throughline" / "context" / mutant.file).write_text(source, encoding="utf-8")
    played = subprocess.run(
        [sys.executable, "-m", "context.fuzz", "--stop", "--seed", str(mutant.first), "--runs", str(sessions)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT / "tests")))},
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [line for line in played.stdout.splitlines() if line.startswith("FAULT")]
    return faults[0] if faults else played.stderr[-500:]


def mutated(mutant: Mutant) -> str:
    """Return the mutant's file with its text replaced.

    Raises ValueError where that text is not there exactly once: the mutant has to follow the code.
    """
    source = (PACKAGE / "context" / mutant.file).read_text(encoding="utf-8")
    if source.count(mutant.old) != 1:
        message = f"{mutant.file} holds what {mutant.name!r} replaces {source.count(mutant.old)} times, not once"
        raise ValueError(message)
    return source.replace(mutant.old, mutant.new)


def _copy_engine(package: Path) -> None:
    """Copy the engine with what is compiled of it; all else of the package stands beside it by links."""
    package.mkdir()
    for part in PACKAGE.iterdir():
        if part.name == "context":
            shutil.copytree(part, package / part.name)
        elif part.name != "__pycache__":
            (package / part.name).symlink_to(part)
