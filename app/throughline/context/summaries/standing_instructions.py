"""Recognising a user's standing instructions: sentences that ask for something from now on, not for one thing once.

By patterns in nine languages: free, and the same for the same text. A sentence counts when an order carries a mark of
lasting ("always", "from now on"), or when it is of a sort that lasts by its nature (a name, a language, a style, a
ban) and nothing ties it to the moment ("now", "this file"). Reports ("she always says") and questions never count.
The ledger asks this of each sentence that is the user's own, neither quoted nor code.
"""

import re
from dataclasses import dataclass

from throughline.context.summaries import order_words
from throughline.context.summaries.revocations import start_of_revocation

SENTENCE_CHARACTERS = 600
"""So much of a sentence is judged; a longer one is a list, a log or a paste."""
_TRADITIONAL = (
    "請麻煩還對過後從現開這裡裏記絕總給寫說稱無論時問處個為變釋註碼標準應該須許嚴條張剛簡體語漢粵韓國歡傾"
    "討厭確證儘盡潔賅禮擔緊著誤會氣動優慮認經據當復覆願話項順樣幫終檔沒數閱讀顯規則詢聽覺讓東車與務號錄"
)
_SIMPLIFIED = (
    "请麻烦还对过后从现开这里里记绝总给写说称无论时问处个为变释注码标准应该须许严条张刚简体语汉粤韩国欢倾"
    "讨厌确证尽尽洁赅礼担紧着误会气动优虑认经据当复复愿话项顺样帮终档没数阅读显规则询听觉让东车与务号录"
)
_AS_SIMPLIFIED = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
"""For the Chinese table, which has the letters of its own script alone."""

_FOLDED_LINE, _PLACEHOLDER = re.compile(r"\n(?=[|(])"), re.compile(r"<(\w+)>")


def is_standing_instruction(sentence: str) -> bool:
    """Whether a user's `sentence` asks for something lasting; what it quotes should be blanked out before."""
    plain = _plain(sentence)
    revoked = start_of_revocation(plain)
    if revoked is not None and not plain.endswith(("?", "？")):
        return not _REPORT.search(plain[:revoked])
    if _REPORT.search(plain) or _OF_OTHERS.search(plain):
        return False
    order = _as_order(_IN_MAY.sub("", plain))
    return any(language.lasts(order) for language in _languages_of(order))


def _plain(sentence: str) -> str:
    plain = " ".join(_NOT.sub("don't ", sentence[:SENTENCE_CHARACTERS].translate(_PLAIN).lower()).split())
    is_chinese = _HAN_OR_KANA.search(plain) and not _KANA.search(plain)
    return plain.translate(_AS_SIMPLIFIED) if is_chinese else plain


def _as_order(plain: str) -> str:
    """Return a polite question as the order it is, nothing of any other question."""
    if plain.endswith(("?", "？")):
        plain, polite = _ASKING.subn("ø ", plain)
        if not polite and not _CJK_ASKING.search(plain):
            return ""
        plain = plain.rstrip("?？ ")
    return plain if _TELLER.search(plain) else _JOINTS.sub(", ", plain)


@dataclass(frozen=True, slots=True)
class _Language:
    """`rules` last whatever stands beside them, `wishes` unless a `moment` does; an `order` lasts by a `lasting`."""

    rules: re.Pattern[str]
    wishes: re.Pattern[str]
    order: re.Pattern[str]
    lasting: re.Pattern[str]
    moment: re.Pattern[str]

    def lasts(self, sentence: str) -> bool:
        if self.rules.search(sentence):
            return True
        rest, marks = self.lasting.subn(", ", sentence)
        if marks and self.order.search(rest):
            return True
        return bool(self.wishes.search(sentence)) and (marks > 0 or not self.moment.search(sentence))


def _languages_of(sentence: str) -> tuple[_Language, ...]:
    if _HAN_OR_KANA.search(sentence):
        return (_JA,) if _KANA.search(sentence) else (_ZH,)
    return (_RU,) if _CYRILLIC.search(sentence) else (_EN, _DE, _FR, _ROMANCE)


def _joined(pattern: str) -> str:
    """Return a pattern written over several lines, which go on with `|` or `(`."""
    return _FOLDED_LINE.sub("", pattern.strip("\n"))


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_joined(pattern))


def _language(table: str) -> _Language:
    """Compile a table of lines `name: pattern`, where `<name>` stands for the pattern of that name."""
    words = dict(line.split(": ", 1) for line in _joined(table).splitlines())
    start = words.get("start", _START)

    def compiled(pattern: str) -> re.Pattern[str]:
        for _ in range(3):
            pattern = _PLACEHOLDER.sub(lambda name: f"(?:{words.get(name[1], _joined(order_words.TEXTS))})", pattern)
        return re.compile(pattern)

    if "ever" not in words:  # no spaces between words: what lasts beside an order is among the rules
        rules, wishes, never = compiled(f"{start}<rules>"), compiled(f"{start}<wishes>"), compiled("(?!)")
        return _Language(rules, wishes, never, never, compiled("<moment>"))
    return _Language(
        rules=compiled(rf"{start}(?:{_EVER_ORDER}|<rules>)"),
        wishes=compiled(f"{start}<wishes>"),
        order=compiled(rf"{start}(?:ø|<verb>\b(?! (?:of|to be)\b)|<ever>|<order>)"),
        lasting=compiled(r"(?<!\w)<lasting>"),
        moment=compiled(r"(?<!\w)<moment>(?!\w)"),
    )


_EVER_ORDER = r"<ever>,? (?!<idle>\b)[\w'«]|<verb>(?:[ -](?!how|to|that|wh|if|it)[\w']+){0,3} <ever>\b(?! <idle>\b)"
_NOT = re.compile(r"\b(?:do not|dont) ")
_PLAIN = str.maketrans({"’": "'", "‘": "'", "*": None, "_": " ", "~": None, "`": "'"})
_KANA, _HAN_OR_KANA, _CYRILLIC = re.compile("[ぁ-ヿ]"), re.compile("[ぁ-ヿ一-鿿]"), re.compile("[а-яё]")
_LEADS = _joined(r"""
(?:(?:ø|please|pls|kindly|okay|ok|hey|hi|hello|also|and|but|so|just|oh|btw|note|important|thanks|thank you|well|yes|no
|sorry|actually|then|plus|remember|reminder|fyi|one more thing|ps|bitte|danke|und|aber|übrigens|wichtig|merci
|s'il (?:te|vous) plaît|stp|svp|et|mais|donc|por favor|gracias|y|pero|además|importante|per favore|grazie|e|ma|inoltre
|obrigad[oa]|mas|então|пожалуйста|и|а|но|также|спасибо|кстати)[\s,:!.—–-]+){0,4}""")
_START = rf"(?:^|[,;:(—–]\s*|\s-\s|\b(?:so|therefore|deshalb|donc|así que|quindi|então|поэтому)\s+){_LEADS}"
_JOINTS = re.compile(r"(?<=\w) (?:and|but|or|then|because|und|aber|oder|et|mais|ou|y|pero|o|e|ma|mas|и|а|но|или) ")
_TELLER = _compiled(r"""
^(?:i|i've|i'm|he|she|we|they|it|there|people|(?:my|the|our) \w+|ich|er|wir|es|man|je|j'\w+|il|elle|on|nous|yo|él|ella
|io|lui|lei|noi|eu|ele|ela|nós|я|он|она|мы|они)\b(?! (?:want|need|prefer|would|like|expect|möchte|will|veux|voudrais
|quiero|voglio|vorrei|quero|хочу))""")
_REPORT = _compiled(r"""
(?<!\bi )(?<!\bi've )\b(?:said|told|wrote|asked|claimed|complained|insisted|advised|warned|keeps? (?:saying|telling)
|used to)\b|\b(?:he|she|they|it|docs?|documentation|readme|manual|error|message|article|policy|book|page|guide|linter
|boss|wife|teacher|law) (?:always |never |clearly )?(?:says?|states?|tells?|recommends?|suggests?|claims?|thinks?|reads
|wants?|insists?|likes?)\b|\bi (?:didn't|never|haven't|don't) (?:say|said|mean|meant|ask|asked|tell|told|recall|think
|believe|know)\b|\baccording to\b|\b(?:don't|doesn't|not|no) (?:have|need|necessary|required
|want)\b[^,;]{0,20} to [^,;]{0,12}(?:always|never|every)\b|\b(?:er|sie|mein\w* \w+|doku\w*) (?:sagt\w*|meint\w*
|schreibt)\b|\b(?:hat|haben) [^,;]{0,40}gesagt\b|\b(?:m'a|il|elle|mon \w+|ma \w+) (?:a )?(?:dit|disait)\b|\b(?:él|ella
|mi \w+|me) (?:dice|dijo|decía)\b|\b(?:lui|lei|mi[oa] \w+|mi ha) (?:dice|(?:ha )?detto)\b|\b(?:ele|ela|(?:meu
|minha) \w+) (?:diz|disse|falou|fala)\b|\b(?:он|она|они|мне|начальник|мо[йя] \w+) (?:\w+ )?(?:говори\w+|сказал\w*|пишет
|советовал\w*)|(?:他|她|老板|同事|老师|文档|妈)[^，。]{0,6}(?:说|告诉|写)|(?:彼|彼女|上司|先生|母|同僚|友達)(?:は|が|に)[^。]{0,40}(?:言|話し|書い)""")
_OF_OTHERS = _compiled(rf"""
^{_LEADS}(?:(?:my|his|her|our|their|the|a|all|some|most|young|old|pregnant|mein|meine|unsere?|mon|ma|mes|mi|mis|mio|mia|meu
|minha) ){{0,3}}(?:patients?|brothers?|sisters?|mother|father|mom|mum|dad|wife|husband|sons?|daughters?|child|children
|kids?|baby|babies|people|adults?|women|men|boys?|girls?|drivers?|doctors?|nurses?|students?|employees|pets?|dogs?|cats?
|bruder|schwester|mutter|vater|frau|mann|sohn|tochter|kinder|kind|frère|sœur|mère|père|femme|mari|fils|fille|hermano|hermana
|madre|padre|hijo|hija|fratello|sorella|figlio|figlia|irmão|irmã|mãe|pai|filho|filha) (?:\w+ )?(?:must|should|shall
|have to|has to|needs? to|ought to|may|can|cannot|can't|mustn't|shouldn't|darf|muss|soll|dürfen|müssen|sollen
|ne doi\w+|doi\w+|no deben?|deben?|non dev\w+|dev\w+|não deve\w*)\b""")
_IN_MAY = _compiled(r"""
(?:\b\d{1,2}\.? ?|\b(?:im|anfang|mitte|ende|seit|bis|ab|vom|am|en|du|au|fin|début|de) )mai\b|\bmai \d{1,4}\b""")
_ASKING = _compiled(rf"""
^{_LEADS}(?:(?:can|could|would|will) you(?: (?:please|kindly|just)){{0,2}}|(?:kannst|könntest|würdest) du|tu peux
|(?:können|könnten|würden) sie|(?:peux|pourrais)-tu|(?:pouvez|pourriez)-vous|¿?(?:me )?(?:puedes|podrías|puede)|puoi
|potresti|(?:você )?(?:pode|poderia)|можешь|можете|не мог(?:ли)? бы (?:ты|вы)|ты можешь)
(?: (?:bitte|mir|s'il (?:te|vous) plaît|por favor|per favore|пожалуйста))?\b[ ,]*""")
_CJK_ASKING = re.compile(r"(?:(?:吗|嗎|好吗|可以吗)|(?:もらえ|いただけ|くれ)(?:ます|ない|ません)?か)[？?]$")
_EN = _language(order_words.EN)
_DE = _language(order_words.DE)
_FR = _language(order_words.FR)
_ROMANCE = _language(order_words.ROMANCE)
_RU = _language(order_words.RU)
_ZH = _language(order_words.ZH)
_JA = _language(order_words.JA)
