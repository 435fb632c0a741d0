# ruff: noqa: INP001  # a file of the operator's own, found beside its agent file
"""An example of a `pre_compact` hook; `careful.yaml` beside it names it as `careful_hooks:before_compaction`.

    AGENTS_DIR=docs/examples make run

It may be `async` too. If it raises, answers something else, or takes too long, the compaction goes on without it, and
while a call of it hangs it is not asked again. A summary of its own, `Decision(summary=…)`, is to stand for the
`about.message_count` messages from `about.from_position` to `about.through_position`.
"""

from throughline.tools import Decision, PreCompact

FEWEST_MESSAGES = 4


def before_compaction(about: PreCompact) -> Decision | None:
    """Leave small compactions for later, and say what the others must keep."""
    if about.trigger == "auto" and about.message_count < FEWEST_MESSAGES and not about.must_compact:
        return Decision(cancel=True)
    return Decision(instructions="Name for every decision who made it and why.")
