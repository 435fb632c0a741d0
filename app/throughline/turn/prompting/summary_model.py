"""The model that an agent names for its summaries, and whether it may be called for a session now."""

import structlog

from throughline.domain.errors import SettingInvalid
from throughline.execution.breaker import BreakerReading, Breakers, BreakerState
from throughline.ports.models import ChatModel, Models
from throughline.turn.prompting.ready_agent import ReadyAgent

log = structlog.get_logger(__name__)


def named_summary_model(models: Models, agent: ReadyAgent) -> ChatModel | None:
    """Return the agent's summary model; None if the agent names none, or the named one is not available."""
    policy = agent.definition.context.summary
    if not policy.model:
        return None
    try:
        return models.get(policy.model, policy.base_url, policy.api_key_env)
    except SettingInvalid as error:
        log.warning("summary model unusable, agent's own model used", model=policy.model, error=error.code)
        return None


def model_keys(model_key: str) -> tuple[str, str, str]:
    """Return the keys under which a model's failures are counted: general ones, timeouts in turns, other timeouts.

    They are separate because a model too slow for a turn can still write summaries in the background.
    """
    return model_key, f"{model_key} in turns", f"{model_key} ahead of turns"


def content_key(model_key: str, session_id: str) -> str:
    """Return the key under which a model's unusable answers for one session are counted."""
    return f"{model_key} for {session_id}"


def read_health(breakers: Breakers, model_key: str, session_id: str) -> BreakerReading:
    """Return the state of the circuit breaker that blocks the session's calls of the model longest.

    It is closed if none blocks them.
    """
    readings = [breakers.reading(key) for key in (*model_keys(model_key), content_key(model_key, session_id))]
    return max(readings, key=lambda reading: (reading.state is not BreakerState.CLOSED, reading.retry_after_seconds))
