"""The circuit breakers that operators read: one for each model and purpose."""

from dataclasses import replace

from fakes.stage import AGENT, Stage
from throughline.agents.definition import OtherModel
from throughline.domain.usage_report import CallPurpose
from throughline.execution.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from throughline.turn.model_breakers import read_breakers
from throughline.turn.prompting.ready_agent import model_keys, turns_key


async def test_a_breaker_of_summaries_tells_its_pause(stage: Stage) -> None:
    _, in_turns, _ = model_keys(stage.model.calibration_key)
    before = read_breakers(stage.dependencies)
    for _failure in range(FAILURES_TO_OPEN):
        stage.dependencies.breakers.failed(in_turns)

    [found] = read_breakers(stage.dependencies)

    assert [(each.purpose, each.state, each.retry_after_seconds) for each in before] == [("summary", "closed", 0)]
    assert (found.model, found.purpose, found.state) == (stage.model.name, CallPurpose.SUMMARY, "open")
    assert 0 < found.retry_after_seconds <= COOL_DOWN_SECONDS


async def test_answers_have_a_breaker_where_an_agent_has_fallback_models(stage: Stage) -> None:
    stage.dependencies.agents.replace_all([replace(AGENT, fallback_models=(OtherModel("offline"),))])
    for _failure in range(FAILURES_TO_OPEN):
        stage.dependencies.breakers.failed(turns_key(stage.model.calibration_key))

    found = {each.purpose: each.state for each in read_breakers(stage.dependencies)}

    assert found == {CallPurpose.ANSWER: "open", CallPurpose.SUMMARY: "closed"}
