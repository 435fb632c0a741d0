"""The known refusals as the servers send them: status and body, in the shape of each server."""

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from throughline.llm.classify_error import KnownRefusal, known_answers

KNOWN_REFUSALS = known_answers().refusals

OF_ANTHROPIC = tuple(known for known in KNOWN_REFUSALS if known.name.startswith("anthropic_"))
OF_GOOGLE = tuple(known for known in KNOWN_REFUSALS if known.name.startswith("gemini_"))
OF_CONNECTIONS = tuple(known for known in KNOWN_REFUSALS if not known.statuses)
ON_OPENAI_WIRE = tuple(known for known in KNOWN_REFUSALS if known not in (*OF_ANTHROPIC, *OF_GOOGLE, *OF_CONNECTIONS))

STATUSES = {
    "openai_no_access": 403,
    "openai_not_verified": 400,
    "anthropic_credit": 400,
    "gemini_key": 400,
    "gemini_region": 400,
    "openrouter_no_images": 404,
    "openrouter_credits": 402,
    "openrouter_unknown_model": 400,
    "template_missing": 400,
    "template_alternating_roles": 400,
    "template_no_system": 400,
    "ollama_no_images": 500,
    "llamacpp_jinja": 500,
    "llamacpp_no_images": 500,
    "lmstudio_none_loaded": 404,
    "lmstudio_unknown_model": 400,
}
"""The status of the recorded answer, of refusals that come with several."""

CODES = {
    "openai_max_tokens": "unsupported_parameter",
    "openai_temperature": "unsupported_value",
    "openai_no_access": "model_not_found",
    "openai_unknown_model": "model_not_found",
    "openai_region": "unsupported_country_region_territory",
    "lmstudio_none_loaded": "model_not_found",
    "lmstudio_unknown_model": "model_not_found",
    "azure_deployment": "DeploymentNotFound",
    "azure_api_version": "404",
    "azure_content_filter": "content_filter",
}


def status_of(known: KnownRefusal) -> int:
    """Return the status of the recorded answer."""
    if len(known.statuses) == 1:
        return next(iter(known.statuses))
    return STATUSES[known.name]


def refused_on_openai_wire(known: KnownRefusal) -> Refused:
    """Return the answer of a server on OpenAI's wire."""
    status = status_of(known)
    raw: Json | str | None = None
    if known.name.startswith(("vllm_", "template_")):
        kind = "NotFoundError" if status == 404 else "BadRequestError"
        raw = {"error": {"message": known.says, "type": kind, "param": None, "code": status}}
    elif known.name.startswith("openrouter_"):
        raw = {"error": {"message": known.says, "code": status}}
    elif known.name.startswith("llamacpp_"):
        kind = "unavailable_error" if status == 503 else "server_error"
        raw = {"error": {"code": status, "message": known.says, "type": kind}}
    elif known.name.startswith("azure_"):
        raw = {"error": {"code": CODES[known.name], "message": known.says}}
    elif known.name == "wrong_path":
        raw = {"detail": known.says}
    elif known.name == "http_to_https_port":
        raw = f"{known.says}\n"
    kind = "api_error" if known.name.startswith("ollama_") else "invalid_request_error"
    return Refused(known.says, status=status, type=kind, code=CODES.get(known.name), raw=raw)
