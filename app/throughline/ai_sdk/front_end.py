"""The AI SDK's interface as a front end: its routes and their document."""

from http import HTTPStatus

from throughline.ai_sdk.request import SendChat
from throughline.ai_sdk.routes import TAG, router
from throughline.http.app import FrontEnd
from throughline.http.documents import FrontEndDocument, Json, describe_errors, pop_error_codes

TEXT = "text/plain"


def _add_errors(path: str, operation: Json) -> None:
    """Add the errors of an operation by their status. Each is a sentence, as `useChat` shows it."""
    operation["responses"].pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)  # FastAPI's own
    operation["responses"] |= describe_errors(pop_error_codes(path, operation), {TEXT: {"schema": {"type": "string"}}})


DOCUMENT = FrontEndDocument(
    "/openapi-ai-sdk.json",
    TAG,
    title="Throughline, the AI SDK's interface",
    bodies=(SendChat,),
    describe_operation=_add_errors,
)
AI_SDK = FrontEnd(
    "The routes for the AI SDK (`/ai-sdk/{agent}`) have a document of their own: `/openapi-ai-sdk.json`.",
    (router,),
    lambda app, config: DOCUMENT.serve(app, is_key_needed=config.is_key_needed),
)
