"""The made parts of the page of metrics: a table for each subject."""

import inspect
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.metrics import MetricWrapperBase

from scripts.reference.markdown import anchor, code, table
from throughline.context.compaction import strategy
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.last_stages import HARD_STAGES, SOFT_STAGES
from throughline.context.compaction.prune import PRUNED, PRUNED_AGGRESSIVELY
from throughline.db.connection.replica import REASONS
from throughline.db.side_jobs import KINDS
from throughline.domain.replica import ANSWERS
from throughline.domain.run import RunStatus
from throughline.domain.summary import CompactionOutcome
from throughline.domain.usage_report import CallPurpose
from throughline.telemetry import PrometheusMetrics

SUBJECTS: Mapping[str, str] = {
    "turn": "Turns and prompts",
    "turns": "Turns and prompts",
    "prompt": "Turns and prompts",
    "estimate": "Turns and prompts",
    "overflow": "Turns and prompts",
    "model": "Turns and prompts",
    "stages": "Context and summaries",
    "compaction": "Context and summaries",
    "compactions": "Context and summaries",
    "summary": "Context and summaries",
    "jobs": "Side jobs",
    "retention": "Retention",
    "replica": "Replica and log",
    "log": "Replica and log",
}
"""The subject of a metric by the first word of its name."""

VALUES: Mapping[str, Sequence[str]] = {
    "`outcome` of reads with a replica": (ANSWERS, *REASONS),
    "`status` of turns": [status for status in RunStatus if not status.needs_worker],
    "`purpose` of costs": (CallPurpose.ANSWER, CallPurpose.SUMMARY),
    "`cause` of compactions": tuple(CompactionTrigger),
    "`outcome` of compactions": (
        CompactionOutcome.ADOPTED,
        CompactionOutcome.SKIPPED,
        CompactionOutcome.FAILED,
        CompactionOutcome.CANCELLED,
    ),
    "`kind` of side jobs": KINDS,
}
STAGES: Mapping[str, str] = {
    PRUNED: "Show old tool outputs as stubs.",
    PRUNED_AGGRESSIVELY: "Show more old tool outputs as stubs, because the prompt is nearly full.",
    strategy.TRUNCATED: "Leave out old messages, as the strategy `truncation` does.",
    strategy.UNIMPORTANT_LEFT_OUT: "Leave out the least important messages, as the strategy `importance` does.",
    **{name: (inspect.getdoc(stage) or "").split("\n\n")[0] for name, stage in (*SOFT_STAGES, *HARD_STAGES)},
}
"""What each stage does, by its name, in the order in which they are tried."""


def metrics_parts() -> dict[str, str]:
    """Return a table of metrics for each subject, by its anchor, and the tables of label values and of stages.

    Raises KeyError for a metric without a subject.
    """
    rows: dict[str, list[tuple[str, ...]]] = {}
    for subject, row in _metric_rows():
        rows.setdefault(anchor(subject), []).append(row)
    values = ((label, ", ".join(map(code, found))) for label, found in VALUES.items())
    return {
        **{name: table(("metric", "type", "labels", "meaning"), found) for name, found in rows.items()},
        "label-values": table(("label", "values"), values),
        "stages": table(("stage", "what it does"), ((code(name), told) for name, told in STAGES.items())),
    }


def _metric_rows() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the subject and the table row of each metric, in order of definition."""
    registry = PrometheusMetrics().registry
    for collector in dict.fromkeys(registry._names_to_collectors.values()):  # noqa: SLF001  # told nowhere else
        assert isinstance(collector, MetricWrapperBase)
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(map(code, collector._labelnames))  # noqa: SLF001  # the library tells them nowhere else
        word = family.name.removeprefix("throughline_").partition("_")[0]
        yield SUBJECTS[word], (code(name), family.type, labels, f"{family.documentation}.")
