"""The words of the page on a session's context, in English: `german.yaml` has the German ones."""

from collections.abc import Mapping

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.explain_context import ContextReport, NextAction
from throughline.context.fit_prompt import MessageVariant
from throughline.context.preview import Action
from throughline.context.prompt_parts import PromptPartKind
from throughline.domain.message import Role
from throughline.domain.summary import CompactionOutcome
from throughline.wire.gauges import is_only_fitted

PARTS: Mapping[str, str] = {
    PromptPartKind.SYSTEM: "System prompt (the agent's instructions)",
    PromptPartKind.TOOLS: "Tools",
    PromptPartKind.SUMMARY: "Summary",
    PromptPartKind.FACTS: "Sentences that the summary keeps word for word",
    PromptPartKind.PINNED: "Pinned messages",
    PromptPartKind.SHORTENED: "Shortened messages, and notes in place of others",
    PromptPartKind.WHOLE: "Messages in full",
    PromptPartKind.QUOTED: "Quoted earlier messages and memories",
    PromptPartKind.NEXT: "The next message",
    "free": "Free",
    "reserve": "Kept free for the answer",
}
MARKS: Mapping[str, str] = {
    "prune": "tool outputs shortened",
    "prune_more": "more of them shortened",
    "threshold": "threshold",
    "budget": "largest prompt",
}
MARK_EXPLANATIONS: Mapping[str, str] = {
    "prune": "Above this, old tool outputs are replaced by short notes.",
    "prune_more": "Above this, fewer tool outputs stay in full.",
    "threshold": "Above this, older messages are summarized or left out.",
    "budget": "No prompt is larger: the rest is kept free for the answer.",
}
ACTIONS: Mapping[Action, str] = {
    Action.NONE: "Nothing is changed: the prompt shows the messages as before.",
    Action.PRUNE: "The prompt is made smaller without a summary.",
    Action.FIT: "What does not fit is shortened or left out of the prompt.",
    Action.COMPACT: "A summary would be written first. The sizes and messages below do not include it yet.",
    Action.ADOPT: "A summary that is ready comes into use.",
}
CAUSES: Mapping[str, str] = {
    CompactionTrigger.THRESHOLD: "The prompt is above the threshold.",
    CompactionTrigger.MESSAGES: "Enough messages were written since the last summary.",
    CompactionTrigger.TOKENS: "Enough tokens were written since the last summary.",
    CompactionTrigger.MANUAL: "A user asked for it.",
    CompactionTrigger.OVERFLOW: "The provider refused the prompt as too long.",
}
OUTCOMES: Mapping[CompactionOutcome, str] = {
    CompactionOutcome.ADOPTED: "a summary came into use",
    CompactionOutcome.PREPARED: "a summary was written ahead",
    CompactionOutcome.PRUNED: "made smaller without a summary",
    CompactionOutcome.FITTED: "shortened to fit",
    CompactionOutcome.SKIPPED: "nothing was done",
    CompactionOutcome.FAILED: "failed",
    CompactionOutcome.CANCELLED: "cancelled",
}
STAGES: Mapping[str, str] = {
    "pruned": "old tool outputs were replaced by short notes",
    "pruned_aggressively": "more tool outputs were replaced by short notes",
    "history_truncated": "the oldest messages were left out",
    "unimportant_left_out": "less important messages were left out",
    "user_text_capped": "a very long message was shortened",
    "summary_shortened": "the summary was shortened",
    "messages_truncated": "long messages were shortened",
    "oldest_trimmed": "the oldest messages were left out to make room",
    "steps_folded": "steps of the answer became one line",
    "messages_squeezed": "all messages were shortened",
    "all_steps_folded": "all steps of the answer became one line",
    "summary_dropped": "the summary was left out",
    "pins_truncated": "pinned messages were shortened",
    "user_text_truncated": "the new message was shortened",
    "notes_dropped": "notes on hidden messages were left out",
    "user_text_truncated_hard": "the new message was shortened much",
    "pins_truncated_hard": "pinned messages were shortened much",
    "pins_left_out": "pinned messages were left out",
}
ROLES: Mapping[Role, str] = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool"}
VARIANTS: Mapping[MessageVariant, str] = {
    MessageVariant.WHOLE: "in the prompt",
    MessageVariant.PRUNED: "a short note in the prompt",
    MessageVariant.TRUNCATED: "shortened in the prompt",
    MessageVariant.FOLDED: "one line in the prompt",
    MessageVariant.SUMMARISED: "in the summary",
    MessageVariant.TRIMMED: "not in the prompt",
    MessageVariant.LEFT_OUT: "not in the prompt",
}
GAUGES = ("Messages since the summary", "Tokens since the summary", "The prompt as it is now, in the window")
NEXT_STEPS: Mapping[NextAction, str] = {
    NextAction.NONE: "The next message does not make it smaller.",
    NextAction.PREPARE: "A summary is due. It is written in the background, at the latest after the next message.",
    NextAction.COMPACT: "The next message makes the prompt smaller first: older messages are shortened or summarized.",
}
ONLY_FITTED = "With the next message, what does not fit is shortened or left out of the prompt."


def next_step(report: ContextReport) -> str:
    """Return the sentence on what the next message triggers."""
    return ONLY_FITTED if is_only_fitted(report) else NEXT_STEPS[report.next_action]


WORDS: Mapping[str, object] = {
    "PARTS": PARTS,
    "MARKS": MARKS,
    "MARK_EXPLANATIONS": MARK_EXPLANATIONS,
    "ACTIONS": ACTIONS,
    "CAUSES": CAUSES,
    "OUTCOMES": OUTCOMES,
    "STAGES": STAGES,
    "ROLES": ROLES,
    "VARIANTS": VARIANTS,
}
"""What the templates of the page use."""
