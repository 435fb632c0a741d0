"""Turns whose model call a server refuses: what the user reads, what the log says, and how often it is asked."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from structlog.testing import capture_logs

from fakes.known_refusals import ON_OPENAI_WIRE, refused_on_openai_wire, status_of
from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.refusals import Refused
from fakes.provider_double.script import ScriptStep
from fakes.stage import AGENT, Stage, open_stage
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.domain.run import RunStatus
from throughline.llm.known_refusal import KnownRefusal
from throughline.llm.registry import ModelRegistry
from throughline.turn.call_model import MAX_TRIES

MODEL = "openai:double-8k-bytes2"
SECRET = "my locker is number nine hundred"


@dataclass(frozen=True, slots=True)
class RefusedStage:
    """A turn's stage whose model is OpenAI's package on the provider double."""

    stage: Stage
    double: ProviderDouble


@pytest.fixture
async def refused(database: Database, provider_double: ProviderDouble) -> AsyncIterator[RefusedStage]:
    registry = ModelRegistry()
    stage = await open_stage(database, agent=replace(AGENT, model=MODEL, base_url=provider_double.url))
    stage.dependencies = replace(stage.dependencies, models=registry)
    yield RefusedStage(stage, provider_double)
    await registry.close()


@pytest.mark.parametrize("known", ON_OPENAI_WIRE, ids=lambda known: known.name)
async def test_a_known_refusal_ends_the_turn_with_cause_and_remedy(refused: RefusedStage, known: KnownRefusal) -> None:
    calls = MAX_TRIES if issubclass(known.kind, ModelUnavailable) else 1
    refused.double.script(*[ScriptStep(refused=refused_on_openai_wire(known))] * calls)

    with capture_logs() as logs:
        run = await refused.stage.turn(f"Hello, {SECRET}")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.type == known.kind.code
    assert run.error.detail.startswith(f"{MODEL}: {known.cause}. {known.remedy} ({status_of(known)}")
    failed = next(entry for entry in logs if entry["event"] == "turn failed")
    assert failed["error"] == known.kind.code
    assert failed["provider_message"] == run.error.provider_message != ""
    retries = [entry for entry in logs if entry["event"] == "model call retried"]
    assert [entry["provider_message"] for entry in retries] == [failed["provider_message"]] * (calls - 1)


async def test_the_log_has_the_providers_words_and_none_of_the_users(refused: RefusedStage) -> None:
    said = f"Cannot process content {SECRET} for key sk-abcdefgh: flag --enable-this is not set"
    refused.double.script(ScriptStep(refused=Refused(said)))

    with capture_logs() as logs:
        run = await refused.stage.turn(f"Hello, {SECRET}")

    failed = next(entry for entry in logs if entry["event"] == "turn failed")
    assert failed["provider_message"] == "Cannot process content … for key … flag --enable-this is not set"
    assert run.error is not None
    assert "enable-this" not in run.error.detail


async def test_without_words_of_the_provider_the_log_has_no_field_for_them(refused: RefusedStage) -> None:
    refused.double.script(ScriptStep(refused=Refused("", status=400, raw="<html>Bad</html>")))

    with capture_logs() as logs:
        await refused.stage.turn("Hello")

    assert "provider_message" not in next(entry for entry in logs if entry["event"] == "turn failed")
