"""`throughline usage`, over the wire."""

import json
from decimal import Decimal

import pytest

from fakes.command_stage import CommandStage
from throughline.cli.commands_status import draw_usage, sum_line
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.wire.service import UsageGroupOut


async def record(service: CommandStage, model: str, usage: Usage) -> None:
    payer = Payer(service.owner_id, agent="helper")
    await service.api.database.usage.store_calls(payer, [ModelCall(model, CallPurpose.ANSWER, usage)])


async def test_each_group_has_a_line_a_bar_and_its_cost(service: CommandStage) -> None:
    await record(service, "openai:gpt-4o", Usage(1_000, 100, cost_usd=Decimal("2.5")))
    await record(service, "small", Usage(10, 5, cost_usd=Decimal("0.0125")))
    await record(service, "local", Usage(7, 1))

    result = await service.run("usage", "--by", "model,agent")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert lines[0] == ["Model", "Agent", "Calls", "Input", "Output", "Cost"]
    assert lines[1] == ["openai:gpt-4o", "helper", "1", "1,000", "100", "$2.50", f"[{'█' * 20}]"]
    assert lines[2] == ["small", "helper", "1", "10", "5", "$0.0125", f"[█{'░' * 19}]"]
    assert lines[3] == ["local", "helper", "1", "7", "1", "–", f"[{'░' * 20}]"]
    assert result.stdout.splitlines()[-1] == "Together: 3 calls, 1,123 tokens, $2.51, and 1 calls of unknown cost"


async def test_json_is_the_report_of_the_service(service: CommandStage) -> None:
    await record(service, "local", Usage(7, 1))

    report = json.loads((await service.run("usage", "--by", "none", "--json", "--days", "1")).stdout)

    assert [(group["group"], group["calls"], group["cost_usd"]) for group in report["data"]] == [({}, 1, None)]


async def test_without_calls_one_note_says_so(service: CommandStage) -> None:
    result = await service.run("usage")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no model calls in the last 30 days" in result.stderr


@pytest.mark.parametrize("by", ["month", "day,day", "day, hour", "", "day,none"])
async def test_an_unknown_field_is_refused_with_the_known_ones(service: CommandStage, by: str) -> None:
    result = await service.run("usage", "--by", by)

    assert result.exit_code == 2
    assert "day, user, agent, model, purpose" in result.stderr


def group(**of: object) -> UsageGroupOut:
    given = {"group": {"user": None}, "calls": 1, "unpriced_calls": 0, "input_tokens": 1, "output_tokens": None, **of}
    return UsageGroupOut.model_validate(given)


def test_bars_compare_tokens_where_no_cost_is_known_and_a_partial_cost_is_marked() -> None:
    unknown = [group(input_tokens=100, unpriced_calls=1), group(input_tokens=50, unpriced_calls=1)]
    bars = [str(cell) for cell in draw_usage(unknown).columns[-1].cells]
    costs = [str(cell) for cell in draw_usage([group(cost_usd=0.5, unpriced_calls=2)]).columns[-2].cells]

    assert [bar.count("█") for bar in bars] == [20, 10]
    assert costs == ["$0.5000+"]
    assert sum_line(unknown) == "Together: 2 calls, 150 tokens, unknown cost"
    assert str(next(iter(draw_usage(unknown).columns[0].cells))) == "(no single one)"
