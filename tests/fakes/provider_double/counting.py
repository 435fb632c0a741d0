"""Counts prompts as three different providers might: on purpose not the way the service under test does."""

import base64
import functools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fakes.provider_double.json_types import Json
from throughline.context.calibration import Calibration, factor, learn, scale
from throughline.context.measure import count_prompt, count_tool_specs
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.llm.counters import load_encoding, make_counter
from throughline.llm.translate_messages import to_tools

LOW_DETAIL_TOKENS = 85
IMAGE_TOKENS = 765


@functools.lru_cache(maxsize=100_000)
def _encoded(encoding: str, text: str) -> int:
    return len(load_encoding(encoding).encode_ordinary(text))


def count_cl100k(text: str) -> int:
    """Tokens in cl100k."""
    return _encoded("cl100k_base", text)


def count_o200k(text: str) -> int:
    """Tokens in o200k."""
    return _encoded("o200k_base", text)


def count_bytes2(text: str) -> int:
    """Half the UTF-8 bytes: about twice as many as a real tokenizer finds in English."""
    return (len(text.encode("utf-8", "surrogatepass")) + 1) // 2


@dataclass(frozen=True, slots=True)
class Counting:
    """A way of counting text, and what it adds for each message, tool call, tool and for the list of tools."""

    count: Callable[[str], int]
    message_tokens: int
    call_tokens: int = 10
    tool_tokens: int = 14
    tools_tokens: int = 20
    reply_tokens: int = 3

    def in_messages(self, messages: Sequence[Json]) -> int:
        """Tokens of all messages with their framing."""
        return self.reply_tokens + sum(self._message(message) for message in messages)

    def in_tools(self, tools: Sequence[Json]) -> int:
        """Tokens of the tools' schemas, 0 for none."""
        if not tools:
            return 0
        return self.tools_tokens + sum(self.tool_tokens + self.count(_tool_text(tool)) for tool in tools)

    def _message(self, message: Json) -> int:
        texts = sum(self.count(text) for text in texts_of(message) if text)
        calls = message.get("tool_calls") or ()
        texts += self.count(message.get("reasoning_content") or "")
        return self.message_tokens + texts + sum(map(_image, _images(message))) + sum(map(self._call, calls))

    def _call(self, call: Json) -> int:
        function = call["function"]
        return self.call_tokens + self.count(function["name"]) + self.count(function["arguments"])


COUNTINGS = {
    "cl100k": Counting(count_cl100k, message_tokens=5),
    "o200k": Counting(count_o200k, message_tokens=4),
    "bytes2": Counting(count_bytes2, message_tokens=7),
}


def texts_of(message: Json) -> Iterator[str]:
    """Yield the texts of a valid message: its content, its name, the id it answers."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    else:
        yield from (block["text"] for block in content or () if block["type"] == "text")
    for field in ("name", "tool_call_id"):
        if message.get(field):
            yield message[field]


def _images(message: Json) -> list[Json]:
    content = message.get("content")
    return [block for block in content if block["type"] == "image_url"] if isinstance(content, list) else []


def _image(block: Json) -> int:
    return LOW_DETAIL_TOKENS if block["image_url"].get("detail") == "low" else IMAGE_TOKENS


def _tool_text(tool: Json) -> str:
    return json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":"))


SYSTEM = "You are a helpful assistant. Answer briefly, and say where you looked things up."
TOOLS = tuple(
    ToolSpec(
        name,
        f"Use {name} to find what was said or stored before. Give a query of a few words.",
        {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}},
    )
    for name in ("search_history", "read_history", "find_documents")
)
WINDOW = 1_000_000
ROLES = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "tool"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """One prompt of the conversation. `turn` counts from 1."""

    turn: int
    estimated: int
    reported: int

    @property
    def error(self) -> float:
        """How far the estimate is above the provider's count, as a share of it."""
        return self.estimated / self.reported - 1


def play(write: Callable[[random.Random], str], way: str, turns: int, seed: int = 1) -> Iterator[Estimate]:
    """Yield the estimates of `turns` turns of texts by `write`, counted by a double that counts in `way`.

    Every turn asks with such a text, calls a tool that returns one, and answers with a third.
    """
    source, count, counting = random.Random(seed), make_counter("tiktoken").count, COUNTINGS[way]
    tools_tokens = count_tool_specs(TOOLS, count)
    messages: list[PromptMessage] = []
    calibration: Calibration | None = None
    for turn in range(1, turns + 1):
        messages += _asked(turn, write, source)
        prompt = Prompt(SYSTEM, tuple(messages))
        ours = count_prompt(prompt, tools_tokens, count)
        reported = counting.in_messages(_payload(prompt)) + counting.in_tools(_tools())
        yield Estimate(turn, scale(ours, factor(calibration, is_known_tokenizer=False)), reported)
        calibration = learn(calibration, ours=ours, provider=reported, configured_window=WINDOW)
        messages.append(PromptMessage(Role.ASSISTANT, write(source)))


def _asked(turn: int, write: Callable[[random.Random], str], source: random.Random) -> list[PromptMessage]:
    call = ToolCall(f"call_{turn}", "search_history", f'{{"query": "topic {turn}", "limit": 5}}')
    return [
        PromptMessage(Role.USER, write(source)),
        PromptMessage(Role.ASSISTANT, "", tool_calls=(call,)),
        PromptMessage(Role.TOOL, write(source), tool_call_id=call.id, name=call.name),
    ]


def _payload(prompt: Prompt) -> list[Json]:
    return [{"role": "system", "content": prompt.system}, *(_message(message) for message in prompt.messages)]


def _message(message: PromptMessage) -> Json:
    sent: Json = {"role": ROLES[message.role], "content": text_of(message.content)}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        sent["tool_call_id"] = message.tool_call_id
    return sent


def _tools() -> list[Json]:
    return [dict(tool) for tool in to_tools(TOOLS)]


ENGLISH = """
    The harbour master kept a ledger of every ship that came in after dark, although nobody had asked him to. | Whether
    the committee would accept the revised budget depended, as always, on three people who never spoke to each other. |
    "You could have told me," she said, putting the letters back into their envelopes one by one. | Prices rose by
    about 4.2% last year, while wages in the northern districts hardly moved at all. | Please send the signed copies to
    the registry before Thursday, otherwise the application will have to be filed again. | It rained, and the road to
    the old observatory had become a narrow brown stream. | Our measurements suggest that the bridge can carry twice
    the traffic it was designed for. | He disliked telephones, mornings, and being asked for his opinion.
"""
RUSSIAN = """
    Начальник порта вёл журнал всех судов, которые приходили после наступления темноты, хотя никто его об этом не
    просил. | Примет ли комиссия пересмотренный бюджет, зависело, как всегда, от трёх человек, которые между собой не
    разговаривали. | «Вы могли бы мне сказать», — произнесла она, складывая письма обратно в конверты. | Цены выросли в
    прошлом году примерно на 4,2 %, а зарплаты в северных районах почти не изменились. | Пожалуйста, отправьте
    подписанные экземпляры до четверга, иначе заявление придётся подавать заново. | Шёл дождь, и дорога к старой
    обсерватории превратилась в узкий ручей. | Наши измерения показывают, что мост выдержит вдвое больше машин.
"""
CHINESE = """
    港口负责人把每一艘天黑以后进港的船都记在账簿里，尽管没有人要求他这样做。|委员会是否会接受修改后的预算，一如既往地取决于三
    个彼此从不说话的人。|“你本来可以告诉我的，”她一边说，一边把信一封一封地放回信封里。|去年物价上涨了大约百分之四点二，而北
    部地区的工资几乎没有变化。|请在星期四之前把签好字的文件寄到登记处，否则就必须重新提交申请。|下雨了，通往旧天文台的路变成
    了一条狭窄的小溪。|我们的测量表明，这座桥可以承受两倍于设计标准的车流量。|他不喜欢电话，不喜欢早晨，也不喜欢别人问他的意见。
"""
CODE = '''
    def {name}(self, {first}: int, *, {second}: str = "{word}") -> list[dict[str, int]]:
        """Return the {word} of each {first}; raises ValueError for a negative one."""
        if {first} < {number}:
            raise ValueError(f"{first} is {{{first}}}, and must be at least {number}")
        rows = [row for row in self._{word}.values() if row.{second}_id == {first}]
        for index, row in enumerate(sorted(rows, key=lambda each: each.position), start=1):
            self._log.debug("{word} read", {second}={second}, index=index, total=len(rows))
            results["{name}"] = results.get("{name}", 0) + row.{first}_count * {number}
        return results
'''
NAMES = ("user", "account", "order", "invoice", "session", "parser", "token", "buffer", "window", "cursor", "ledger")


def english(source: random.Random) -> str:
    """Prose."""
    return _prose(source, ENGLISH, " ")


def russian(source: random.Random) -> str:
    """The same in Cyrillic."""
    return _prose(source, RUSSIAN, " ")


def chinese(source: random.Random) -> str:
    """The same in Chinese characters."""
    return _prose(source, CHINESE, "")


def code(source: random.Random) -> str:
    """Python."""
    return "\n".join(_function(source) for _ in range(source.randint(2, 6)))


def json_text(source: random.Random) -> str:
    """A JSON answer of some service, indented or not."""
    rows = [
        {
            "id": f"{source.getrandbits(64):016x}",
            "name": f"{source.choice(NAMES)}_{source.choice(NAMES)}",
            "amount": round(source.uniform(1, 9000), 2),
            "active": source.random() < 0.5,
            "tags": source.sample(NAMES, 3),
            "created_at": f"2026-0{source.randint(1, 9)}-1{source.randint(0, 9)}T0{source.randint(0, 9)}:15:00Z",
        }
        for _ in range(source.randint(4, 20))
    ]
    return json.dumps({"data": rows, "next_cursor": None}, indent=2)


def base64_text(source: random.Random) -> str:
    """Random bytes in base64."""
    return base64.b64encode(source.randbytes(source.randint(600, 3000))).decode()


TEXTS: Mapping[str, Callable[[random.Random], str]] = {
    "English": english,
    "Chinese": chinese,
    "Russian": russian,
    "code": code,
    "JSON": json_text,
    "base64": base64_text,
}


def _prose(source: random.Random, text: str, joint: str) -> str:
    lines = (line.strip() for line in text.strip().splitlines())
    sentences = [sentence.strip() for sentence in joint.join(lines).split("|")]
    return joint.join(source.choice(sentences) for _ in range(source.randint(8, 30)))


def _function(source: random.Random) -> str:
    first, second, word = source.sample(NAMES, 3)
    return CODE.format(
        name=f"find_{first}_{word}", first=first, second=second, word=word, number=source.randint(0, 5000)
    )
