"""Chat commands for the context: how full it is, what a message would do to it, summaries and pins."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from uuid import UUID

from rich.text import Text

from throughline.cli.chat.state import ChatState, session_of
from throughline.cli.client import ServiceClient
from throughline.cli.context_views import draw_context, draw_preview, span
from throughline.cli.history_views import INVALID_STYLE, marked, problems
from throughline.cli.printable import joined, moment, one_line, printable, wrapped
from throughline.cli.session_files import is_position
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.wire.gauges import after_restore
from throughline.wire.messages import MessageOut
from throughline.wire.sessions import SessionOut, SpentOut, SummaryCostOut, SummaryVersionOut

MOST_VERSIONS = 2
_FROM = re.compile(r"from #?(\d{1,9})(?:\s+|\Z)", re.IGNORECASE)
_NO_PLACE = re.compile(r"from(?:\s*\Z|\s+[-+#\d]\S*)", re.IGNORECASE)
"""A `from` that should be followed by a position and is not. Text such as "from now on" belongs to the instructions."""

PREPARED = "prepared"
"""Name of the newest prepared summary, which has no number yet."""

UNCHANGED_AROUND = 1
"""Number of unchanged lines shown on either side of a change."""


def draw_versions(versions: Sequence[SummaryVersionOut], *, width: int) -> Text:
    """Return one line for each version, in the order given; a line that says so if there is no version."""
    if not versions:
        return Text("No summary yet.")
    firsts: dict[tuple[int, str], int] = {}
    for version in sorted(versions, key=lambda item: item.version or 0):
        if version.version is not None:
            firsts.setdefault(_content(version), version.version)
    return joined((_version_line(version, firsts.get(_content(version))) for version in versions), width=width)


def draw_version(version: SummaryVersionOut, *, width: int) -> Text:
    """Return one version with its whole text, and what is wrong with its citations."""
    lines = [
        line
        for line_text in printable(marked(version.text, version.citations)).splitlines()
        for line in wrapped(line_text, width=width) or [""]
    ]
    remarks = [Text(problem, style=INVALID_STYLE) for problem in problems(version.citations)]
    return Text("\n").join([_version_line(version, version.version), Text(), *map(Text, lines), *remarks])


def draw_changes(old: SummaryVersionOut, new: SummaryVersionOut, *, width: int) -> Text:
    """Return the differences of two versions by lines: `-` for lines only in `old`, `+` for lines only in `new`."""
    head = (
        f"{_name(old)} ({_place(old)}) → {_name(new)} ({_place(new)}): {old.token_count:,} → {new.token_count:,} tokens"
    )
    before, after = (printable(version.text).splitlines() for version in (old, new))
    changes = list(_changes(before, after))
    lines = [
        Text(line, style=style)
        for mark, line_text, style in changes
        for line in wrapped(f"{mark} {line_text}", width=width) or [""]
    ]
    return Text("\n").join([Text(head, style="bold"), *(lines or [Text("Both versions have the same text.")])])


def versions_named(argument: str) -> tuple[str, ...]:
    """Return the versions in `argument`: none, one or two, each a number, an id or `prepared`.

    Raises InvalidInput for anything else.
    """
    words = argument.split()
    if len(words) > MOST_VERSIONS:
        raise InvalidInput("Give one version to read it, or two to compare them.")
    return tuple(word if word == PREPARED else version_named(word) for word in words)


def version_named(argument: str) -> str:
    """Return the version's number or id in `argument`, without the `v` of the list. Raises InvalidInput."""
    name = argument.removeprefix("v")
    if name.isascii() and (name.isdecimal() or _is_id(name)):
        return name
    raise InvalidInput("Give the number or the id of a version. The list of summaries shows them.")


def request_of(argument: str) -> JsonObject:
    """Return the request fields for `from N` and the instructions after it; empty without either.

    Raises InvalidInput for a `from` without the number of a message.
    """
    found = _FROM.match(argument)
    if found is None and _NO_PLACE.match(argument):
        raise InvalidInput("Write the number of a message after `from`, as in: /summarize from 12 keep all dates")
    instructions = argument[found.end() :] if found else argument
    asked: JsonObject = {"instructions": instructions} if instructions else {}
    return {**asked, "from_position": int(found[1])} if found else asked


def cost_line(cost: SummaryCostOut) -> str:
    """Return the line on what a summary will read and cost."""
    time = "" if cost.seconds is None else f", {_about(cost.seconds)}"
    return (
        f"{span(cost.from_position, cost.through_position)}, {counted(cost.message_count, 'message')}: about "
        f"{counted(cost.calls, 'call')} of the summary model, {cost.input_tokens:,} tokens read and at most "
        f"{cost.output_tokens:,} written{time}"
    )


def _about(seconds: float) -> str:
    whole = round(seconds)
    return f"about {counted(whole, 'second')}" if whole else "less than a second"


def spent_line(spent: SpentOut) -> str:
    """Return the line on what a summary has cost."""
    return (
        f"{counted(spent.calls, 'call')} of the summary model, {spent.input_tokens:,} tokens read and "
        f"{spent.output_tokens:,} written, {spent.seconds:.1f} seconds"
    )


def counted(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural if needed."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def restored(version: SummaryVersionOut | None, session: SessionOut) -> str:
    """Return the line that confirms that `version` was restored; None: the session has no summary now.

    For a version that was in use already, the line says that nothing has changed.
    """
    if version is None:
        return (
            f"The session has no summary now: none of {session.message_count} messages is summarized. The "
            "versions are kept."
        )
    if version.state == "adopted":
        return f"{_name(version).capitalize()} is in use already; nothing has changed."
    return (
        f"Restored {_name(version)}: {session.summarized_count} of {session.message_count} messages are "
        "summarized. The restored summary is a new version."
    )


def _name(version: SummaryVersionOut) -> str:
    return "the prepared version" if version.version is None else f"version {version.version}"


def _place(version: SummaryVersionOut) -> str:
    return span(1, version.through_position) if version.through_position else "nothing"


def _content(version: SummaryVersionOut) -> tuple[int, str]:
    return version.through_position, version.text


def _version_line(version: SummaryVersionOut, first: int | None) -> Text:
    """Return the line for one version of a summary.

    `first` is the oldest version with the same content: later ones are created by restoring it.
    """
    number = "–" if version.version is None else f"v{version.version}"
    segments = f" in {version.segments} segments" if version.segments > 1 else ""
    model = f"  by {one_line(version.model, limit=40)}" if version.model else ""
    again = f"  same as v{first}" if first is not None and first != version.version else ""
    line = (
        f"{number:<4} {one_line(version.state, limit=10):<10} {_place(version):<9} {version.token_count:>6,} tokens "
        f"{moment(version.created_at)}{model}{segments}{again}"
    )
    return Text(line, style="bold" if version.state == "adopted" else "")


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield mark, line and style of changed lines and the lines around them; `…` replaces omitted lines."""
    groups = list(SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(UNCHANGED_AROUND))
    for number, group in enumerate(groups):
        if number:
            yield " ", "…", "dim"
        for kind, first, last, start, stop in group:
            if kind == "equal":
                yield from ((" ", line, "dim") for line in before[first:last])
            else:
                yield from (("-", line, "red") for line in before[first:last])
                yield from (("+", line, "green") for line in after[start:stop])


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


NO_REQUEST = "nothing"


async def show_context(state: ChatState, _argument: str) -> None:
    """Print the context report: how full the window is, and what the next message triggers."""
    session = session_of(state)
    state.screen.draw(draw_context(await state.client.context(session.id), width=state.screen.width))


async def show_preview(state: ChatState, text: str) -> None:
    """Print what the next model call would show, with `text` as the message if given."""
    session = session_of(state)
    state.screen.draw(draw_preview(await state.client.preview(session.id, text), width=state.screen.width))


async def summarize(state: ChatState, argument: str) -> None:
    """Write a summary now, and print its cost before and after.

    With `from N` or instructions, messages are read again. If there is nothing to read, only the result is printed.
    """
    session, request = session_of(state), request_of(argument)
    is_cost_told = await _tell_cost(state, session.id, request)
    state.screen.note("summarizing …")
    done = await state.client.summarize(session.id, request)
    state.session = done.session
    state.screen.say(f"Summary {done.outcome}{f': {done.detail}' if done.detail else '.'}")
    if is_cost_told:
        state.screen.note(spent_line(done.spent))
    if done.outcome != "adopted":
        return
    state.screen.say(
        f"{done.session.summarized_count} of {done.session.message_count} messages are summarized; "
        f"the prompt went from {done.tokens_before:,} to {done.tokens_after:,} tokens."
    )


async def _tell_cost(state: ChatState, session_id: str, request: JsonObject) -> bool:
    """Print what a summary will cost. Return False if there is nothing to read.

    Without a request, an estimate that fails is passed over: the summary itself then says what is wrong.
    """
    try:
        cost = await state.client.estimate_summary(session_id, request)
    except ThroughlineError:
        if request:
            raise
        return False
    if cost.message_count:
        state.screen.note(cost_line(cost))
    return cost.message_count > 0


async def keep(state: ChatState, instructions: str) -> None:
    """Set what every summary of the session has to keep, and print it. '' changes nothing, `nothing` removes it."""
    session = session_of(state)
    if instructions:
        session = state.session = await state.client.keep_in_summaries(
            session.id, "" if instructions == NO_REQUEST else instructions
        )
    kept = session.summary_instructions
    state.screen.say(
        f"Every summary keeps: {printable(kept)}" if kept else "This session has no instructions for its summaries."
    )


async def show_summaries(state: ChatState, argument: str) -> None:
    """Print the list of summary versions, the text of one version, or the changes between two."""
    session = session_of(state)
    state.screen.draw(await drawn_summaries(state.client, session.id, argument, width=state.screen.width))


async def drawn_summaries(client: ServiceClient, session_id: str, argument: str, *, width: int) -> Text:
    """Return a drawing of the version list, or of the one or two versions in `argument`. Raises InvalidInput."""
    names = versions_named(argument)
    if not names:
        return draw_versions(await client.summaries(session_id), width=width)
    shown = [await _version(client, session_id, name) for name in names]
    return draw_version(shown[0], width=width) if len(shown) == 1 else draw_changes(*shown[:2], width=width)


async def _version(client: ServiceClient, session_id: str, name: str) -> SummaryVersionOut:
    """Return the version with that number or id, or the newest prepared one.

    Raises InvalidInput if no summary is prepared.
    """
    if name != PREPARED:
        return await client.summary(session_id, name)
    waiting = [version for version in await client.summaries(session_id) if version.state == PREPARED]
    if not waiting:
        raise InvalidInput("No summary is prepared now. The list of summaries shows all versions.")
    return waiting[0]


async def restore(state: ChatState, argument: str) -> None:
    """Restore a summary version, given by its number or its id; 0 stands for no summary."""
    state.session, lines = await restore_version(state.client, session_of(state).id, argument)
    for line in lines:
        state.screen.say(line)


async def restore_version(client: ServiceClient, session_id: str, argument: str) -> tuple[SessionOut, list[str]]:
    """Restore the version in `argument`, 0 for none. Return the session and the lines to print."""
    name = version_named(argument)
    version = await client.summary(session_id, name) if name.strip("0") else None
    session = await client.restore(session_id, version.id if version else "0")
    lines = [restored(version, session)]
    if version is None or version.state != "adopted":
        # The summary is restored, also where the context cannot be told.
        with suppress(ThroughlineError):
            lines.append(after_restore(await client.context(session_id)))
    return session, [line for line in lines if line]


async def pin(state: ChatState, argument: str) -> None:
    """Pin the message at a position, with its group."""
    message = await _message_at(state, argument, command="/pin")
    group = await state.client.pin(session_of(state).id, message.id)
    positions = [member.position for member in group] or [message.position]
    whole = ", a tool call and its results" if len(positions) > 1 else ""
    state.screen.say(f"Pinned {span(min(positions), max(positions))}{whole}: every prompt shows it word for word.")


async def unpin(state: ChatState, argument: str) -> None:
    """Remove the pin from the message at a position and from its group."""
    message = await _message_at(state, argument, command="/unpin")
    await state.client.unpin(session_of(state).id, message.id)
    state.screen.say(f"#{message.position} is no longer pinned.")


async def _message_at(state: ChatState, argument: str, *, command: str) -> MessageOut:
    session, text = session_of(state), argument.removeprefix("#")
    if not is_position(text):
        given = f", not {one_line(argument, limit=20)!r}" if argument else ""
        raise InvalidInput(f"Write {command} with a message's number in /history{given}.")
    message = await state.client.message_at(session.id, int(text))
    if message is None:
        raise InvalidInput(f"There is no message #{text}. /history shows the numbers.")
    return message
