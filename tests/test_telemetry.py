import pytest

from throughline.telemetry import PrometheusMetrics


def value(metrics: PrometheusMetrics, series: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(series, labels)


def test_stages_and_refused_prompts_are_counted() -> None:
    metrics = PrometheusMetrics()

    metrics.stage_fired(stage="pruned")
    metrics.stage_fired(stage="pruned")
    metrics.overflow_met(model="m")

    assert value(metrics, "throughline_rungs_total", rung="pruned") == 2
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
