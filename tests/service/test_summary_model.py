"""A summary model named beside DEFAULT_LLM is asked at the operator's own server, not at the provider's."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.provider_double import ProviderDouble, Verdict
from fakes.service_process import run_service

pytestmark = pytest.mark.slow
SMALL = "double-16k-cl100k"


async def test_a_summary_model_of_the_settings_is_asked_where_the_default_model_lives(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    environment = {**on_double, "CONTEXT_SUMMARY_MODEL": f"openai:{SMALL}"}
    async with run_service(folder, environment) as service:
        session = await service.new_session()
        for number in range(6):
            (await service.send(session, f"stone {number} " + "and another word " * 40)).raise_for_status()
        summarised = (await service.client.post(f"/v1/sessions/{session}/summarize")).raise_for_status().json()

    summaries = [record for record in provider_double.requests if record.model == SMALL]
    assert summarised["outcome"] == "adopted", summarised
    assert {record.verdict for record in summaries} == {Verdict.ANSWERED}
