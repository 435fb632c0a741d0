"""Which model an agent names for its summaries, and whether a session can have it asked now."""

import structlog

from throughline.domain.errors import SettingInvalid
from throughline.execution.breaker import BreakerReading, Breakers, BreakerState
from throughline.ports.models import ChatModel, Models
from throughline.prompting.ready_agent import ReadyAgent

log = structlog.get_logger(__name__)


def named_summary_model(models: Models, agent: ReadyAgent) -> ChatModel | None:
    """Return the agent's summary model; None where its own writes its summaries, or the named one cannot be had."""
    policy = agent.definition.context.summary
    if not policy.model:
        return None
    try:
        return models.get(policy.model, policy.base_url, policy.api_key_env)
    except SettingInvalid as error:
        log.warning("summary model cannot be used", model=policy.model, error=error.code)
        return None


def model_keys(model_key: str) -> tuple[str, str, str]:
    """Return under what a model's failures are counted: its time-outs in turns, those ahead of them, all others first.

    A model too slow for a turn still writes ahead of turns.
    """
    return model_key, f"{model_key} in turns", f"{model_key} ahead of turns"


def content_key(model_key: str, session_id: str) -> str:
    """Under what the answers of a model that a session cannot use are counted."""
    return f"{model_key} for {session_id}"


def read_health(breakers: Breakers, model_key: str, session_id: str) -> BreakerReading:
    """Return whether the session can have the model asked: of its breakers the one that lasts longest."""
    readings = [breakers.reading(key) for key in (*model_keys(model_key), content_key(model_key, session_id))]
    return max(readings, key=lambda reading: (reading.state is not BreakerState.CLOSED, reading.retry_after_seconds))
