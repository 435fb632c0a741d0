"""The messages of a request, split at its newest user message: history, that message, and the steps after it.

Both request forms of OpenAI are read into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from throughline.domain.errors import InvalidInput
from throughline.domain.message import NewMessage, Role


@dataclass(frozen=True, slots=True)
class BroughtConversation:
    """The messages of a request: those before the newest user message, that message, and the steps after it.

    `instructions` are the texts of its system and developer messages. `user_message` is None without a user message.
    `steps` are model messages with tool calls and the results of these calls, in the order in which a turn takes them.
    """

    instructions: str = ""
    history: tuple[NewMessage, ...] = ()
    user_message: NewMessage | None = None
    steps: tuple[NewMessage, ...] = ()

    @property
    def steps_with_calls(self) -> int:
        """The number of steps that call tools."""
        return sum(1 for message in self.steps if message.tool_calls)


@dataclass(slots=True)
class _Step:
    """A step that is being read: its message and the results of its calls by id."""

    message: NewMessage
    called: frozenset[str]
    results: dict[str, NewMessage] = field(default_factory=dict)

    def messages(self) -> tuple[NewMessage, ...]:
        in_order = (self.results.get(call.id) for call in self.message.tool_calls)
        return (self.message, *(result for result in in_order if result is not None))


def split_messages(messages: Sequence[NewMessage], *, instructions: str, param: str) -> BroughtConversation:
    """Return the conversation that `messages` are. `param` is the request's field, for errors.

    Raises InvalidInput if the messages after the newest user message are no steps of a turn: an answer that is to be
    continued, two calls of a step with one id, a result without its call, or two results of one call.
    """
    asked_at = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=None)
    if asked_at is None:
        return BroughtConversation(instructions, tuple(messages))
    steps: list[_Step] = []
    for index, message in enumerate(messages[asked_at + 1 :], start=asked_at + 1):
        _add(steps, message, f"{param}.{index}")
    taken = tuple(message for step in steps for message in step.messages())
    return BroughtConversation(instructions, tuple(messages[:asked_at]), messages[asked_at], taken)


def _add(steps: list[_Step], message: NewMessage, where: str) -> None:
    if message.role is Role.ASSISTANT:
        if not message.tool_calls:
            raise InvalidInput(
                f"{where} is an answer after the newest user message. An answer cannot be continued: remove it, or "
                "add a user message after it.",
                field=where,
            )
        called = frozenset(call.id for call in message.tool_calls)
        if len(called) < len(message.tool_calls):
            raise InvalidInput(f"{where} has two calls with the same id. Give each its own.", field=where)
        steps.append(_Step(message, called))
        return
    if not steps or message.tool_call_id not in steps[-1].called or message.tool_call_id in steps[-1].results:
        raise InvalidInput(
            f"{where} is the result of a call {message.tool_call_id!r}, which the message before it did not make, or "
            "which has a result already.",
            field=where,
        )
    steps[-1].results[message.tool_call_id] = message
