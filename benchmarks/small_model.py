"""What a conversation in a small window keeps of plain facts, with a real small language model and without a good one.

`python -m benchmarks.small_model`, which takes some minutes. One session of sixty turns with a window of 2,048 tokens
has twelve plain facts in small talk, then each fact is asked for. A proxy before the model's server records what is
sent: which facts the prompts hold, and how large they are by the model's own count. Whether the model knows the answer
is counted, too, but a model of this size often does not. All adopted texts are printed. Exits with 1 if an aim is
missed.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from aiohttp import ClientSession, ClientTimeout, web

from benchmarks.figures import aligned, connected
from benchmarks.processes import run_postgres, run_server, run_service, write_agent
from benchmarks.replay_data import SAMPLE
from benchmarks.small_model_server import WINDOW, find_weights
from throughline.context.summaries.judge_by_sources import telling_words
from throughline.context.summaries.render_summary import CUT_MARK
from throughline.context.summaries.summary_prompt import SUMMARISER_SYSTEM_PROMPT

KEY = "a-key-for-the-benchmark-of-a-small-model"
AGENT, MODEL = "small", "openai:smollm2-135m-instruct"
TURNS, LEAST_TURNS, LAST_FACT_TURN = 60, 30, 36
ANSWER_TOKENS, REPEAT_PENALTY = 60, 1.15
"""Without the penalty, the model soon answers everything with the same words."""

SUMMARY_SECONDS, TURN_SECONDS = 120.0, 600.0
AIM_LAST, AIM_ASKED = 9, 11
LEAST_JUDGED, LEAST_SHARED, MOST_ADDRESS, MOST_TIMES = 20, 2, 0.08, 2
"""Telling words of a user from which a narrative has to share some, and how many; the largest share of words such as
`I` and `you`, which a report of others has few of; how often a sentence may stand in a narrative.
"""

SUMMARIES = ("small", "dead", "offline", "none")
ADOPTED = """
select distinct s.from_position, s.through_position, s.level, s.model, s.text,
    (select string_agg(m.content, ' ') from messages m where m.session_id = s.session_id
     and m.role = 'user' and m.position between s.from_position and s.through_position) as said
from summary_versions v join summaries s on s.id = any (v.segment_ids) where v.version is not null
order by s.from_position, s.through_position
"""
VERSIONS = "select version, model, through_position, text from summary_versions where version is not null order by 1"


@dataclass(frozen=True, slots=True)
class Fact:
    """What a user says, the word that tells whether a text holds it, and how it is asked for.

    `casually` says the same in lower case and in words that announce nothing to remember.
    """

    said: str
    casually: str
    word: str
    asked: str

    def stands_in(self, text: str) -> bool:
        """Return whether the text holds the fact."""
        return self.word.casefold() in text.casefold()


def read_facts(*, casual: bool = False) -> tuple[list[Fact], list[str]]:
    """Return the facts and the small talk; `casual` ones are said casually."""
    data = json.loads((SAMPLE / "small_model.json").read_text("utf-8"))
    facts = [Fact(**fact) for fact in data["facts"]]
    return [replace(fact, said=fact.casually) for fact in facts] if casual else facts, data["talk"]


def conversation(facts: Sequence[Fact], talk: Sequence[str], turns: int) -> list[str]:
    """Return what the user says in so many turns: the facts at equal distances, the last one long before the end."""
    last = LAST_FACT_TURN * turns // TURNS
    places = {1 + (last - 1) * number // (len(facts) - 1): fact.said for number, fact in enumerate(facts)}
    lines = iter(talk)
    return [places.get(turn) or next(lines) for turn in range(turns)]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request to the model as it was sent, the prompt's tokens by the model's own count, and the answer.

    Without an answer there are 0 tokens.
    """

    system: str
    texts: tuple[str, ...]
    most_answer_tokens: int
    status: int
    prompt_tokens: int
    answer: str = ""

    @property
    def is_summary(self) -> bool:
        """Whether it asks for a summary or for a choice of facts."""
        return not self.system.startswith("You are a helpful assistant.")

    @property
    def is_over(self) -> bool:
        """Whether prompt and answer do not fit the window, or the server refused it."""
        is_refused = self.status in {400, 413, 422}
        return is_refused or self.prompt_tokens + self.most_answer_tokens > WINDOW


_PROMPT_TOKENS = re.compile(rb'"prompt_tokens":\s*(\d+)')
_CONTENT = re.compile(rb'"content":\s*("(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class Proxy:
    """Hands requests on to the model's server and records them. `refuses_summaries`: requests for summaries fail."""

    target: str
    refuses_summaries: bool
    sent: list[Sent] = field(default_factory=list)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Forward one request."""
        body = await request.read()
        asked: dict[str, Any] = json.loads(body) if body else {}
        refused = _recorded(asked, 503, b"")
        if self.refuses_summaries and refused.is_summary and refused.texts:
            self.sent.append(refused)
            return web.json_response({"error": {"message": "down", "type": "server_error"}}, status=503)
        heads = {"Content-Type": request.content_type}
        async with (
            ClientSession(self.target, timeout=ClientTimeout(total=TURN_SECONDS)) as client,
            client.request(request.method, request.path_qs, data=body, headers=heads) as got,
        ):
            response = web.StreamResponse(status=got.status, headers={"Content-Type": got.content_type})
            answer = b""
            with suppress(ConnectionResetError):  # of a client that waits no longer, such as for the model's window
                await response.prepare(request)
                async for piece in got.content.iter_any():
                    answer += piece
                    await response.write(piece)
        if "messages" in asked:
            self.sent.append(_recorded(asked, got.status, answer))
        return response


def _recorded(asked: dict[str, Any], status: int, answer: bytes) -> Sent:
    messages = asked.get("messages", ())
    texts = tuple(one["content"] if isinstance(one["content"], str) else json.dumps(one) for one in messages)
    tokens = _PROMPT_TOKENS.findall(answer)
    most = asked.get("max_tokens") or asked.get("max_completion_tokens") or 0
    is_system = bool(messages) and messages[0]["role"] in {"system", "developer"}
    said = "".join(json.loads(piece) for piece in _CONTENT.findall(answer))
    return Sent(texts[0] if is_system else "", texts, most, status, int(tokens[-1]) if tokens else 0, said)


@asynccontextmanager
async def run_proxy(proxy: Proxy) -> AsyncGenerator[str]:
    """Run the proxy; yields the base URL for a client."""
    app = web.Application(client_max_size=10**8)
    app.router.add_route("*", "/{path:.*}", proxy.forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@dataclass(slots=True)
class Talk:
    """A session of the service."""

    http: httpx.AsyncClient
    session: str
    turns: int = 0
    failed: int = 0

    async def say(self, text: str) -> str:
        """Send a message; return its answer, '' if the turn failed."""
        self.turns += 1
        print(f"\rturn {self.turns}", end="", file=sys.stderr, flush=True)
        answer = await self.http.post(f"{self.session}/messages", json={"content": text})
        got = answer.json()
        if not answer.is_success:
            self.failed += 1
            print(f"A turn failed: {answer.text[:500]}", file=sys.stderr)
            return ""
        return str(got["message"]["content"])


_TEMPLATE = re.compile(r"<\|[a-z_]{2,30}\|>|</?s>")
_RECORD_TAG = re.compile(r"(?:[\[<]|^\W*)#+\d+ (?:user|assistant|tool|calls)\b", re.MULTILINE)
_PREFACE = re.compile(
    r"\W*(?:sure|certainly|of course|okay|hello|hi|thank you|here(?:'s| is| are)|i(?:'m| am|'ll| will| hope))\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\b(?:i|me|my|we|us|our|you|your)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_TO_READER = re.compile(
    r"\b(?:would you like|do you want|let me know|feel free|how can i|is there anything)\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def faults_of(text: str, said: str) -> list[str]:
    """Return why a narrative should not have been adopted for what a user has `said`; empty for one that may serve.

    A narrative without words is none: the kept facts alone stand for the messages.
    """
    if not text.strip():
        return []
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
    repeated = max(map(sentences.count, sentences))
    own = "\n".join(line for line in text.splitlines() if "[#" not in line).strip()  # a cited line may quote
    users = telling_words(said)
    least = LEAST_SHARED if len(users) >= LEAST_JUDGED else 1
    found = {
        "a template's token": _TEMPLATE.search(text),
        "a record's tag": _RECORD_TAG.search(text),
        "a preface": _PREFACE.match(text),
        "words to the reader": _TO_READER.search(sentences[-1]),
        "a talk, no report": len(_ADDRESS.findall(own)) > MOST_ADDRESS * len(_WORD.findall(own)),
        "its own task": any(one.count(" ") > 3 and one in SUMMARISER_SYSTEM_PROMPT for one in sentences),
        "a loop": repeated > MOST_TIMES,
        "two cuts": text.count(CUT_MARK.strip()) > 1,
        "hardly a word of the user": own and len(telling_words(text) & users) < least,
    }
    return [fault for fault, is_found in found.items() if is_found]


@dataclass(slots=True)
class Outcome:
    """What came of a conversation: the prompt of its last turn, and for each fact the question's prompt and answer."""

    failed: int = 0
    last: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: Sequence[Sent] = ()
    adopted: list[tuple[str, str, list[str]]] = field(default_factory=list)
    versions: list[tuple[str, str]] = field(default_factory=list)


async def play(options: argparse.Namespace, folder: Path) -> Outcome:
    """Play the conversation and ask for its facts, with the model's server and the service started in the folder."""
    facts, small_talk = read_facts(casual=options.casual)
    async with AsyncExitStack() as stack:
        database_url = await stack.enter_async_context(run_postgres(folder))
        command = ["benchmarks.small_model_server", "--threads", str(options.threads), "--seed", str(options.seed)]
        model = stack.enter_context(run_server(command, folder, {}, probe="/health"))
        proxy = Proxy(model.url, refuses_summaries=options.summary == "none")
        environment = {
            "DATABASE_URL": database_url,
            "BOOTSTRAP_API_KEY": KEY,
            "DEFAULT_LLM": MODEL,
            "DEFAULT_LLM_BASE_URL": await stack.enter_async_context(run_proxy(proxy)),
            "MODEL_IDLE_TIMEOUT_SECONDS": str(TURN_SECONDS),
            "TURN_TIMEOUT_SECONDS": str(TURN_SECONDS),
        }
        _write_agent(folder, options.summary)
        service = await asyncio.to_thread(lambda: stack.enter_context(run_service(folder, environment)))
        headers = {"Authorization": f"Bearer {KEY}"}
        client = httpx.AsyncClient(base_url=service.url, timeout=TURN_SECONDS + 60, headers=headers)
        created = await (await stack.enter_async_context(client)).post("/v1/sessions", json={"agent": AGENT})
        talk = Talk(client, f"/v1/sessions/{created.raise_for_status().json()['id']}")
        for said in conversation(facts, small_talk, options.turns):
            await talk.say(said)
        last = _prompt(proxy)
        asked = [(await talk.say(fact.asked), _prompt(proxy).removesuffix(fact.asked)) for fact in facts]
        outcome = Outcome(talk.failed, last, [(prompt, answer) for answer, prompt in asked], proxy.sent)
        await _read_texts(database_url, outcome)
    return outcome


async def _read_texts(database_url: str, outcome: Outcome) -> None:
    """Add the adopted texts to the outcome."""
    async with connected(database_url) as connection:
        for row in await connection.fetch(ADOPTED):
            name = f"#{row['from_position']}-#{row['through_position']}, level {row['level']}, {row['model']}"
            outcome.adopted.append((name, row["text"], faults_of(row["text"], row["said"])))
        for row in await connection.fetch(VERSIONS):
            name = f"version {row['version']} through #{row['through_position']}, {row['model']}"
            outcome.versions.append((name, row["text"]))


def _write_agent(folder: Path, summary: str) -> None:
    named = {
        "dead": {"model": MODEL + "-dead", "base_url": "http://127.0.0.1:9/v1"},
        "offline": {"model": "offline"},
    }
    summaries = {"timeout_seconds": SUMMARY_SECONDS, **named.get(summary, {})}
    context = {"window": WINDOW, "response_reserve": ANSWER_TOKENS, "summary": summaries}
    write_agent(folder, AGENT, context=context, parameters={"body": {"repeat_penalty": REPEAT_PENALTY}})


def _prompt(proxy: Proxy) -> str:
    """Return the text of the newest prompt of a turn."""
    return "\n".join(next(sent for sent in reversed(proxy.sent) if not sent.is_summary).texts)


def report(outcome: Outcome, facts: Sequence[Fact], summary: str) -> tuple[str, bool]:
    """Return the tables and texts as Markdown, and whether the aims are reached."""
    asked = list(zip(facts, outcome.asked, strict=True))
    last = [fact.stands_in(outcome.last) for fact in facts]
    shown = [fact.stands_in(prompt) for fact, (prompt, _) in asked]
    told = [fact.stands_in(answer) for fact, (_, answer) in asked]
    turns = [sent for sent in outcome.sent if not sent.is_summary]
    faulty = [faults for _, _, faults in outcome.adopted if faults]
    over = sum(sent.is_over for sent in outcome.sent)
    heads = [
        "summary model",
        "requests",
        "of summaries",
        "largest prompt",
        "over",
        "failed turns",
        "in the last prompt",
    ]
    heads += ["in the prompt when asked", "in the answer", "versions", "adopted texts", "faulty"]
    figures = [len(outcome.sent), len(outcome.sent) - len(turns), max(sent.prompt_tokens for sent in turns), over]
    figures += [outcome.failed, sum(last), sum(shown), sum(told), len(outcome.versions), len(outcome.adopted)]
    rows = [heads, [summary, *map(str, figures), str(len(faulty))]]
    of_facts = [["fact", "in the last prompt", "in the prompt when asked", "in the answer"]]
    for fact, *cells in zip(facts, last, shown, told, strict=True):
        of_facts.append([fact.word, *("yes" if cell else "-" for cell in cells)])
    texts = [
        f"### {name}{': ' + ', '.join(faults) if faults else ''}\n\n{text}" for name, text, faults in outcome.adopted
    ]
    texts += [f"### {name}\n\n{text}" for name, text in outcome.versions[-1:]]
    is_reached = sum(last) >= AIM_LAST and sum(shown) >= AIM_ASKED and not over and not faulty and not outcome.failed
    return "\n\n".join([*texts, f"### The last prompt\n\n{outcome.last}", aligned(of_facts), aligned(rows)]), is_reached


async def main(arguments: Sequence[str] | None = None) -> int:
    """Play, measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    try:
        find_weights()
    except ModuleNotFoundError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory(prefix="small-model-") as folder:
        outcome = await play(options, Path(folder))
    if options.record:
        lines = (json.dumps(asdict(sent), ensure_ascii=False) for sent in outcome.sent)
        options.record.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    text, is_reached = report(outcome, read_facts()[0], f"{options.summary}{', casual' * options.casual}")
    print(text)
    return 0 if is_reached else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_model", description=__doc__)
    parser.add_argument(
        "--summary",
        choices=SUMMARIES,
        default="small",
        help="who writes summaries: the small model; the small model for one that refuses connections; rules; or "
        "no model at all, as every request for a summary fails",
    )
    parser.add_argument("--casual", action="store_true", help="facts in lower case, in words that announce nothing")
    parser.add_argument("--seed", type=int, default=1, help="of the model")
    parser.add_argument("--turns", type=int, choices=range(LEAST_TURNS, TURNS + 1), metavar="N", default=TURNS)
    parser.add_argument(
        "--threads", type=int, default=1, help="of the model's server; more are slower where cores are busy"
    )
    parser.add_argument("--record", type=Path, help="a file for all requests to the model, as lines of JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
