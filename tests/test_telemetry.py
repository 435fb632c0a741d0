import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
import yaml

from fakes.programs import ROOT
from throughline.domain.run import RunStatus
from throughline.http.route_errors import PROBLEM_KINDS
from throughline.telemetry import PrometheusMetrics


def value(metrics: PrometheusMetrics, series: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(series, labels)


def test_stages_and_refused_prompts_are_counted() -> None:
    metrics = PrometheusMetrics()

    metrics.stage_fired(stage="pruned")
    metrics.stage_fired(stage="pruned")
    metrics.overflow_met(model="m")

    assert value(metrics, "throughline_stages_total", stage="pruned") == 2
    assert value(metrics, "throughline_overflow_errors_total", model="m") == 1


def test_what_summaries_cost_is_counted_also_where_they_are_never_used() -> None:
    metrics = PrometheusMetrics()

    metrics.summary_written(model="m", input_tokens=900, output_tokens=80, seconds=1.5)
    metrics.summary_written(model="m", input_tokens=100, output_tokens=20, seconds=0.5)
    metrics.summary_unused(model="m", tokens=120, reason="superseded")
    metrics.summary_failed(model="m", reason="model_timeout")

    assert value(metrics, "throughline_summary_tokens_total", model="m", direction="input") == 1_000
    assert value(metrics, "throughline_summary_tokens_total", model="m", direction="output") == 100
    assert value(metrics, "throughline_summary_seconds_count", model="m") == 2
    assert value(metrics, "throughline_summary_seconds_sum", model="m") == 2.0
    assert value(metrics, "throughline_summary_tokens_unused_total", model="m", reason="superseded") == 120
    assert value(metrics, "throughline_summary_failures_total", model="m", reason="model_timeout") == 1


def test_a_summary_model_that_is_left_alone_is_shown_until_a_call_reaches_it_again() -> None:
    metrics = PrometheusMetrics()

    metrics.summary_breaker_read(model="m", is_open=True)
    assert value(metrics, "throughline_summary_breaker_open", model="m") == 1
    metrics.summary_breaker_read(model="m", is_open=False)
    assert value(metrics, "throughline_summary_breaker_open", model="m") == 0


@pytest.mark.parametrize(
    ("reported", "above", "upto"),
    [
        (1_000, "-0.02", "0.0"),
        (1_040, "0.02", "0.05"),
        (940, "-0.1", "-0.05"),
        (400, None, "-0.5"),
        (9_000, "1.0", "+Inf"),
    ],
)
def test_the_error_of_an_estimate_keeps_its_sign(reported: int, above: str | None, upto: str) -> None:
    metrics = PrometheusMetrics()

    metrics.estimate_compared(model="m", estimated=1_000, reported=reported)

    assert value(metrics, "throughline_estimate_error_bucket", model="m", le=upto) == 1
    assert above is None or value(metrics, "throughline_estimate_error_bucket", model="m", le=above) == 0


def test_a_compaction_is_recorded_with_the_prompts_size_before_and_after() -> None:
    metrics = PrometheusMetrics()

    metrics.compaction_measured(tokens_before=7_000, tokens_after=900)

    assert value(metrics, "throughline_compaction_tokens_before_sum") == 7_000
    assert value(metrics, "throughline_compaction_tokens_after_sum") == 900


def test_an_estimate_of_nothing_is_not_compared() -> None:
    metrics = PrometheusMetrics()

    metrics.estimate_compared(model="m", estimated=0, reported=7)

    assert value(metrics, "throughline_estimate_error_count", model="m") is None


def test_every_series_is_exposed_under_the_services_name() -> None:
    body, kind = PrometheusMetrics().render()

    names = {line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE")}
    assert kind.startswith("text/plain")
    assert all(name.startswith("throughline_") for name in names)


def test_side_jobs_are_shown_by_kind_as_they_wait_and_as_they_end() -> None:
    metrics = PrometheusMetrics()

    metrics.job_ended(kind="prepare_summary", outcome="continued")
    metrics.jobs_waiting(kind="prepare_summary", jobs=3, oldest_seconds=1.5)
    metrics.jobs_taken(is_taking=True)

    assert value(metrics, "throughline_jobs_total", kind="prepare_summary", outcome="continued") == 1
    assert value(metrics, "throughline_jobs_waiting", kind="prepare_summary") == 3
    assert value(metrics, "throughline_jobs_oldest_seconds", kind="prepare_summary") == 1.5
    assert value(metrics, "throughline_jobs_taking") == 1


OPERATIONS = ROOT / "docs" / "operations"
DASHBOARD, RULES = OPERATIONS / "monitoring" / "grafana-dashboard.json", OPERATIONS / "monitoring" / "alert-rules.yml"
OF_PROMETHEUS = {"instance", "job"}
"""Labels that Prometheus adds to each series that it scrapes."""

SERIES = re.compile(r"\b(throughline_\w+|up\b)")
MATCHERS = re.compile(r"\{([^}]*)\}")
MATCHED = re.compile(r"(\w+) *(?:=~|!~|!=|=) *\"([^\"]*)\"")
GROUPED = re.compile(r"\b(?:by|without) *\(([^)]*)\)")
SHOWN = re.compile(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}")
HEADING = re.compile(r"^#{2,3} +(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, the texts that show its labels, and a name for it."""

    name: str
    expression: str
    texts: str = ""


def existing_series() -> Mapping[str, set[str]]:
    """Return the labels of each series, after everything was recorded once."""
    metrics = PrometheusMetrics()
    metrics.turn_finished(agent="a", status="succeeded", seconds=1)
    metrics.turns_waiting(status="queued", turns=1, oldest_seconds=1)
    metrics.prompt_sent(model="m", tokens=1, window_tokens=2)
    metrics.compaction_finished(cause="manual", outcome="adopted", seconds=1, tokens_freed=1)
    metrics.compaction_measured(tokens_before=2, tokens_after=1)
    metrics.model_paid(model="m", purpose="answer", cost_usd=1)
    metrics.model_failed(model="m", error="model_timeout")
    metrics.stage_fired(stage="pruned")
    metrics.summary_written(model="m", input_tokens=1, output_tokens=1, seconds=1)
    metrics.summary_unused(model="m", tokens=1, reason="superseded")
    metrics.summary_failed(model="m", reason="timeout")
    metrics.summary_breaker_read(model="m", is_open=True)
    metrics.estimate_compared(model="m", estimated=1, reported=1)
    metrics.overflow_met(model="m")
    metrics.job_ended(kind="k", outcome="done")
    metrics.jobs_waiting(kind="k", jobs=1, oldest_seconds=1)
    metrics.jobs_taken(is_taking=True)
    metrics.retention_deleted(kind="k", count=1)
    metrics.retention_failed(kind="k")
    metrics.retention_out_of_time(kind="k")
    labels: dict[str, set[str]] = defaultdict(set, up=set())
    for family in metrics.registry.collect():
        for sample in family.samples:
            labels[sample.name] |= sample.labels.keys()
    return labels


def panels() -> list[dict[str, object]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[Query]:
    """Yield the expressions of both files."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield Query(f"{panel['title']} {target['refId']}", target["expr"], target["legendFormat"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield Query(variable["name"], variable["definition"])
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield Query(rule["alert"], rule["expr"], rule["annotations"]["summary"])


def labels_in(query: Query) -> set[str]:
    """Return the labels that the expression or its texts name."""
    matched = [name for inside in MATCHERS.findall(query.expression) for name, _ in MATCHED.findall(inside)]
    grouped = [name.strip() for inside in GROUPED.findall(query.expression) for name in inside.split(",")]
    return {*matched, *grouped, *SHOWN.findall(query.texts)}


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.name)
def test_a_query_names_series_and_labels_that_the_service_has(query: Query) -> None:
    existing = existing_series()
    named = set(SERIES.findall(query.expression))

    assert named
    assert named - existing.keys() == set()
    of_series = set().union(*(existing[name] for name in named))
    assert labels_in(query) - of_series - OF_PROMETHEUS == set()


def test_values_in_queries_are_those_that_the_service_records() -> None:
    known = {
        "status": {status.value for status in RunStatus},
        "error": PROBLEM_KINDS.keys(),
        "outcome": {"done", "continued", "failed", "let_go", "handed_back"},
        "job": {"throughline"},
    }
    asked = [
        (label, value)
        for query in queries()
        for inside in MATCHERS.findall(query.expression)
        for label, values in MATCHED.findall(inside)
        for value in values.split("|")
        if value != "$instance"
    ]

    assert asked
    assert [(label, value) for label, value in asked if value not in known[label]] == []


def test_every_series_is_shown_by_the_dashboard() -> None:
    shown = {name for query in queries() for name in SERIES.findall(query.expression)}
    families = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in existing_series()}
    wanted = {name for name in families if not name.endswith("_created")} - {"up"}

    assert wanted - {name.removesuffix("_bucket") for name in shown} == set()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    taken = [
        (column, line)
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]

    assert len(taken) == len(set(taken))
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_links_to_a_heading_of_the_runbook(alert: Mapping[str, Mapping[str, str]]) -> None:
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    headings = HEADING.findall((OPERATIONS / page).read_text())

    assert page == "runbook.md"
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert alert["labels"]["severity"] in {"critical", "warning"}


def test_the_page_explains_every_panel_and_alert() -> None:
    page = (OPERATIONS / "monitoring.md").read_text()

    missing = [str(panel["title"]) for panel in panels() if f"| {panel['title']} |" not in page]
    missing += [str(alert["alert"]) for alert in alerts() if f"| `{alert['alert']}` |" not in page]
    assert missing == []
