"""Texts of six kinds that tokenizers count very differently, made from a seed: the same ones in every run."""

import base64
import json
import random
from collections.abc import Callable, Mapping

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
