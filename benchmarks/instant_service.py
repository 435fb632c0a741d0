"""The real service with an instant model: `python -m benchmarks.instant_service serve …`, as `throughline`.

Every model on the OpenAI wire is the one of `benchmarks.instant_model`, inside the service's own process. The variable
INSTANT_MODEL_SECONDS says how long an answer takes to begin.
"""

import os

from langchain_core.language_models import BaseChatModel

import throughline.main
from benchmarks.instant_model import InstantModel
from throughline.llm import openai_wire

SECONDS = "INSTANT_MODEL_SECONDS"


def make_instant(
    model: str, base_url: str | None, *, idle_seconds: float, connect_seconds: float, api_key: str | None = None
) -> BaseChatModel:
    """Return an instant model, whatever is asked for; the signature is that of `openai_wire.make_openai`."""
    del model, base_url, idle_seconds, connect_seconds, api_key
    return InstantModel(answer_seconds=float(os.environ.get(SECONDS, "0")))


def use_instant_model() -> None:
    """Let every model on the OpenAI wire that is made from now on be an instant one."""
    setattr(openai_wire, "make_openai", make_instant)  # noqa: B010  # the service has no setting for it, on purpose


def main() -> None:
    """Run the command line of the service."""
    use_instant_model()
    throughline.main.main()


if __name__ == "__main__":
    main()
