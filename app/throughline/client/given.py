"""What a waiting call is given: the arguments of `Client.resume`."""

import json
from collections.abc import Mapping

from throughline.client.arguments import read_storable_object, read_text
from throughline.domain.errors import InvalidInput
from throughline.domain.text import clean_text
from throughline.domain.waiting import MAX_OUTPUT, MAX_REASON, Decision, Resolution


def approve(call_id: str) -> Resolution:
    """Let the call be run."""
    return Resolution(_call(call_id), decision=Decision.APPROVE)


def reject(call_id: str, reason: str = "") -> Resolution:
    """Do not let the call be run; the model is told the reason. Raises InvalidInput for a reason that is too long."""
    return Resolution(_call(call_id), _text(reason, "reason", MAX_REASON), decision=Decision.REJECT)


def edit(call_id: str, arguments: Mapping[str, object]) -> Resolution:
    """Let the call be run with these arguments. Raises InvalidInput unless JSON can represent them."""
    written = json.dumps(read_storable_object(arguments, field="arguments"), ensure_ascii=False)
    return Resolution(_call(call_id), decision=Decision.EDIT, arguments=written)


def answer(call_id: str, text: str) -> Resolution:
    """Answer the question of the call. Raises InvalidInput for a text that is too long."""
    return Resolution(_call(call_id), _text(text, "text", MAX_OUTPUT))


def result(call_id: str, text: str, *, is_error: bool = False) -> Resolution:
    """Return the result of a tool that this program ran. `is_error`: the tool failed, and the text says why.

    Raises InvalidInput for a text that is too long.
    """
    return Resolution(_call(call_id), _text(text, "text", MAX_OUTPUT), is_error)


def _call(call_id: str) -> str:
    return clean_text(read_text(call_id, field="call_id"))


def _text(given: str, field: str, most: int) -> str:
    text = clean_text(read_text(given, field=field))
    if len(text) > most:
        raise InvalidInput(f"{field} has {len(text)} characters; at most {most} are allowed.", field=field)
    return text
