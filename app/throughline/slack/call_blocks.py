"""Messages about calls of a waiting run, in Slack's Block Kit: what is asked, and what became of it.

Arguments and answers stand in `rich_text` blocks, whose text Slack reads as it is: nothing in it mentions people or
links. See https://docs.slack.dev/reference/block-kit/blocks/ .
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from throughline.domain.basic_types import JsonValue, RunId
from throughline.domain.tool import AwaitedCall, Question, WaitKind, read_question, readable_arguments
from throughline.slack.blocks import escaped
from throughline.slack.markdown.convert import to_slack

MOST_ARGUMENTS = 2_500
MOST_QUESTION = 8_000
MOST_LINE = 2_500
MOST_LABEL = 75
"""Longest label of a button; Slack refuses a longer one."""

MOST_BUTTONS = 25
"""Most buttons of one block; further options are only listed."""

STOPS = ":octagonal_sign: stops the turn."
Block = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class CallMessage:
    """A message about a call. `text` is for notifications, and is shown where blocks cannot be."""

    text: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class CallEnd:
    """What became of a call: a line in Slack's mrkdwn, and what stands below it word for word, '' for nothing."""

    line: str
    below: str = ""


def ask_message(call: AwaitedCall, reader_id: str, until: datetime, key: str) -> CallMessage:
    """Return the message that asks the reader about the call; `key` begins the values of its buttons."""
    asked = f"<@{reader_id}>"
    if call.kind is WaitKind.ANSWER:
        question = read_question(call.arguments)
        line = f":question: {asked}, a question:"
        how = "Choose, or answer in this thread." if question.options else "Answer in this thread."
        note = f"{how} Until {when(until)}. {STOPS}"
        shown = [_section(line), _question(question), *_buttons(_options(question), key), _note(note)]
        return CallMessage(f"{asked}, a question waits for you", shown)
    line = f":raised_hand: {asked}, may `{_name(call)}` be run?"
    note = f"Messages here wait until this is decided, until {when(until)}. {STOPS}"
    buttons = _buttons([("approve", "Approve", "primary"), ("reject", "Reject", "danger")], key)
    return CallMessage(
        f"{asked}, {_name(call)} needs your approval", [_section(line), *_verbatim(call), *buttons, _note(note)]
    )


def ended_message(call: AwaitedCall, end: CallEnd) -> CallMessage:
    """Return the message that says what became of the call, in place of the question."""
    asked = [_question(read_question(call.arguments))] if call.kind is WaitKind.ANSWER else _verbatim(call)
    below = [_preformatted(_cut(end.below, MOST_ARGUMENTS))] if end.below.strip() else []
    return CallMessage(end.line, [*asked, _section(end.line), *below])


def key_of(run_id: RunId, number: int) -> str:
    """Return how the values of the buttons of message `number` about a call of the run begin."""
    return f"{run_id}:{number}"


def option_at(call: AwaitedCall, choice: str) -> str | None:
    """Return the option that a button stands for, None if the question has no such option."""
    options = read_question(call.arguments).options
    return options[int(choice)] if choice.isdecimal() and int(choice) < len(options) else None


def when(time: datetime) -> str:
    """Return a time that Slack shows in each reader's own time zone."""
    fallback = time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(time.timestamp())}^{{date_short_pretty}}, {{time}}|{fallback}>"


def _name(call: AwaitedCall) -> str:
    return escaped(call.name.replace("`", "'"))


def _options(question: Question) -> list[tuple[str, str, str]]:
    labels = [" ".join(option.split()) for option in question.options[:MOST_BUTTONS]]
    return [(str(number), _cut(label, MOST_LABEL), "") for number, label in enumerate(labels)]


def _question(question: Question) -> Block:
    """Return the question, with its options if a button cannot show one of them whole."""
    is_cut = len(question.options) > MOST_BUTTONS or any(len(option) > MOST_LABEL for option in question.options)
    listed = "".join(f"\n\n{number}. {option}" for number, option in enumerate(question.options, 1)) if is_cut else ""
    return {"type": "markdown", "text": to_slack(_cut(f"{question.text}{listed}", MOST_QUESTION))}


def _verbatim(call: AwaitedCall) -> list[Block]:
    arguments = readable_arguments(call.arguments)
    shown = _cut(arguments, MOST_ARGUMENTS)
    blocks = [_preformatted(shown)]
    if len(shown) < len(arguments):
        blocks.append(_note(f":warning: Only the beginning of {len(arguments):,} characters is shown."))
    return blocks


def _buttons(choices: Sequence[tuple[str, str, str]], key: str) -> list[Block]:
    """Return a block with a button for each choice, its label and its style; none without choices."""
    buttons: list[JsonValue] = [
        {
            "type": "button",
            "action_id": f"decide_{choice}",
            "text": {"type": "plain_text", "text": label, "emoji": False},
            "value": f"{key}:{choice}",
            **({"style": style} if style else {}),
        }
        for choice, label, style in choices
    ]
    return [{"type": "actions", "elements": buttons}] if buttons else []


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text, MOST_LINE)}}


def _note(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _preformatted(text: str) -> Block:
    elements: list[JsonValue] = [{"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}]
    return {"type": "rich_text", "elements": elements}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
