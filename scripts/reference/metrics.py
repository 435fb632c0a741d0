"""The made parts of the page of metrics: a table for each subject."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics import MetricWrapperBase

from scripts.reference.markdown import anchor, code, table
from throughline.telemetry import PrometheusMetrics

SUBJECTS: Mapping[str, str] = {
    "turn": "Turns and prompts",
    "turns": "Turns and prompts",
    "prompt": "Turns and prompts",
    "estimate": "Turns and prompts",
    "overflow": "Turns and prompts",
    "model": "Turns and prompts",
    "rungs": "Context and summaries",
    "compaction": "Context and summaries",
    "compactions": "Context and summaries",
    "summary": "Context and summaries",
    "jobs": "Side jobs",
    "retention": "Retention",
}
"""The subject of a metric by the first word of its name."""


def metrics_parts() -> dict[str, str]:
    """Return a table of metrics for each subject, by its anchor. Raises KeyError for a metric without a subject."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for subject, row in _described():
        rows.setdefault(anchor(subject), []).append(row)
    return {name: table(("metric", "type", "labels", "meaning"), found) for name, found in rows.items()}


def _described() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield subject and row of each metric, in the order of their definition."""
    registry = PrometheusMetrics().registry
    for collector in dict.fromkeys(registry._names_to_collectors.values()):  # noqa: SLF001  # told nowhere else
        assert isinstance(collector, MetricWrapperBase)
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(map(code, collector._labelnames))  # noqa: SLF001  # the library tells them nowhere else
        word = family.name.removeprefix("throughline_").partition("_")[0]
        yield SUBJECTS[word], (code(name), family.type, labels, f"{family.documentation}.")
