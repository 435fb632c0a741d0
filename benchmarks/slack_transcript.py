"""Prints what a Slack of ours saw, as Markdown: the calls of each scene, and how its thread reads."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fakes.provider_double.json_types import Json
from fakes.slack_double import Said, Workspace
from fakes.slack_double.workspace import Call

SHOWN_CHARS = 90
WHOLE_CHARS = 500
FIRST, LAST = 2, 1
"""Of many calls of one method after the other, so many are shown."""


@dataclass(slots=True)
class Transcript:
    """What happened in a workspace since the last time it was told."""

    workspace: Workspace
    told: int = 0

    def forget(self) -> None:
        """Tell nothing of what was so far."""
        self.told = len(self.workspace.calls)

    def tell(self, title: str, *said: Said) -> None:
        """Print the calls, and the thread of what was said: the first opened it."""
        calls = self.workspace.calls[self.told :]
        self.forget()
        print(f"\n## {title}\n\n| at, s | method | text | outcome |\n|--:|---|---|---|")
        for line in _rows(calls):
            print(line)
        print(f"\nThe thread in {said[0].channel}:\n")
        by_time: list[tuple[str, str]] = [(item.ts, f"**{item.user}**: {item.text}") for item in said]
        print("\n>\n".join(f"> {line}" for _, line in by_time))
        for posted in self.workspace.in_thread(said[0].channel, said[0].where):
            edits = f", edited {posted.edits}×" if posted.edits else ""
            way = "streamed" if posted.was_streamed else "posted"
            print(f">\n> **bot** ({way}{edits}, {len(posted.text):,} characters):")
            print("\n".join(f"> {line}" for line in _shortened(posted.text).splitlines()))

    def tell_history(self, messages: Sequence[Json]) -> None:
        """Print a session's messages as REST returns them."""
        print("\nIts history over REST:\n")
        for item in messages:
            print(f"- {item['position']} {item['role']} ({item['source']}, {item.get('author')}): {item['content']}")

    def tell_shown(self, command: str, shown: Json) -> None:
        """Print what a command showed its asker."""
        print(f"\n`{command}` shows its asker alone:\n")
        texts = [str((block.get("text") or {}).get("text", "")) for block in shown.get("blocks") or ()]
        print("\n".join(f"> {line}" for text in texts or [shown["text"]] for line in text.splitlines()))


def _rows(calls: Sequence[Call]) -> Iterator[str]:
    begun = calls[0].at if calls else 0.0
    for _, group in itertools.groupby(calls, key=lambda call: (call.method, call.outcome)):
        same = list(group)
        if len(same) <= FIRST + LAST + 1:
            yield from (_row(call, begun) for call in same)
            continue
        yield from (_row(call, begun) for call in same[:FIRST])
        yield f"| … | `{same[0].method}` | {len(same) - FIRST - LAST} more | {same[0].outcome} |"
        yield from (_row(call, begun) for call in same[-LAST:])


def _row(call: Call, begun: float) -> str:
    text = " ".join(str(call.args.get("markdown_text") or call.args.get("status") or "").split()).replace("|", "\\|")
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text):,} characters)"
    return f"| {call.at - begun:.1f} | `{call.method}` | {shown} | {call.outcome} |"


def _shortened(text: str) -> str:
    return text if len(text) <= WHOLE_CHARS else f"{text[:150]} … {text[-100:]}"
