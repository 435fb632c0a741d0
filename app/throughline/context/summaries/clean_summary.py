"""Removal of what a summary model writes around its summary; `check_summary` judges what remains.

Small models greet the reader, offer further help, go on with the dialogue, copy tags and sentences of the request, and
repeat themselves. A good summary between such parts is kept.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache

from throughline.context.summaries import summary_prompt
from throughline.context.summaries.keep_lines import KEEP_TASK

MOST_PARTS = 6
"""Number of prefaces at the beginning, and of closing sentences at the end, that are removed."""

CLOSING_CHARACTERS = 300
"""Length up to which a sentence at the end may be addressed to the reader."""

MOST_TIMES, TIMES_IN_A_LIST = 2, 40
"""Number of times that a sentence may stand in a summary, and that it may stand below different items of a list.

Two sections may tell the same, and ten tasks the same owner, but a model in a loop repeats itself without end. Of a
sentence that stands there more often, the first stays.
"""

WORDS_BETWEEN = 2
"""Number of words between two equal sentences, found nowhere else, from which the second is no repetition."""

LOOPED_WORDS, SHORT_TIMES = 3, 5
"""Number of words from which a sentence may be one of a loop; shorter ones are marks, names and answers.

Those are a loop if they stand in the text more often than SHORT_TIMES with nothing new between them.
"""

TASK_WORDS = 4
"""Number of words from which a sentence that stands in the request's task is taken for a part of it; no heading is."""

_SOURCES = """summar\\w*+ overview recap synopsis conversation record zusammenfassung\\w* gespräch\\w*
    resumen conversación résumé riassunto resumo conversa 总结 摘要 概要 概述 对话 要約 まとめ
    сводк\\w* резюме содержание"""
_NAMED = "|".join(_SOURCES.split())
"""What a preface announces, in the languages whose refusals are known."""

_INTERJECTION = re.compile(
    r"\A[\s¡]*+(?:(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok|alright|great|no problem|got it"
    r"|understood|gladly|klar|gerne?|natürlich|selbstverständlich|claro(?: que sí)?|por supuesto|bien sûr|d'accord"
    r"|certo|конечно|хорошо|好的|当然|没问题|はい|承知しました|かしこまりました)[!.,:。！，、：]++"
    r"|(?:hello|hi|hi there|hey|thank you[^.!:\n]{0,60}|thanks|hallo|hola|bonjour|你好|您好)[!.。！]++)\s*+",
    re.IGNORECASE,
)
_PREFACE = re.compile(
    r"\A[\s*_>]*+(?:(?:here(?:['’]s| is| are)|below (?:is|are)|the following is|based on (?:the|your|our|this)"
    r"|i(?:['’]ve| have)|i(?:['’]ll| will| can)|i(?:['’]d| would) be|i(?:['’]m| am) happy|let me|as requested"
    r"|hier (?:ist|sind|kommt)|nachfolgend|im folgenden|aquí (?:tienes|está|tiene)|a continuación|voici|ecco|aqui está"
    r"|вот|ниже)\b|以下是|这是|以下は)[^.!?:。：\n]{0,80}?"
    rf"(?:{_NAMED})[^.!?:。：\n]{{0,80}}(?:[:：][\s*_]*+|[.。](?=\s)\s*+|\n\s*+)",
    re.IGNORECASE,
)
_VOICE = re.compile(
    r"\A[\s*_>\"]*+(?:i(?:['’]m| am) (?:(?:so|very|really|also) ){0,2}(?:glad|happy|pleased|delighted|excited|thrilled)"
    r" (?:that )?(?:(?:you|the user)\b|to (?:hear|see|know|help|share)\b)"
    r"|i(?:['’]ll| will) (?:(?:also|just) )?(?:make sure (?:to|that|it)|be sure to|do my best"
    r"|(?:try to )?(?:keep|make) (?:it|this|the (?:summary|report))"
    r"|(?:add|include) (?:a few|some|more|the) )\b)[^.!?\n\[]{0,200}[.!?]++(?:\s++|\Z)",
    re.IGNORECASE,
)
"""A sentence in the assistant's voice about its work or its pleasure."""

_CLOSING = re.compile(
    r"\A[\s*_(]*+(?:(?:please )?(?:let me know|feel free|would you like|do you want|is there anything|do you have any"
    r"|anything else|i hope (?:this|that)|hope this|shall i|should i (?:continue|go on|add)|how (?:can|may) i"
    r"|what (?:would|do) you|can i help|i(?:['’]m| am) (?:here|happy|glad) to|thank you for|thanks for"
    r"|please (?:provide|confirm|tell me)|if you (?:have|need|want|would|['’]d|like)|note:? (?:that )?this|note: this"
    r"|this (?:summary|text) (?:is|was|covers|captures|provides)|end of summary"
    r"|sag mir|lass(?:en sie)? (?:es )?mich|möchtest du|möchten sie|kann ich (?:dir|ihnen|sonst|noch)|gibt es noch"
    r"|hast du noch|ich hoffe|avísame|espero que|souhaitez|voulez-vous|n['’]hésite|dites-moi|j['’]espère|puis-je"
    r"|дайте знать|хотите|если у вас|надеюсь)\b|¿(?:quieres|te gustaría|hay algo|necesitas|puedo|en qué)"
    r"|请告诉我|请随时|如果(?:你|您)(?:有|需要)|(?:您|你)还|需要我|希望这|还有什么|ご質問|何か)",
    re.IGNORECASE,
)
_ENDS, _QUOTES = ".!?\n。！？", ')]*_"”）'
_LISTED = re.compile(r"\A\s*+(?:[-*•+]|\d{1,3}[.)])\s")
_SPECIAL = re.compile(
    r"(?!\A<s>[^<\n]*+</s>\s*+\Z)(?P<struck><s>[^<>\n]{1,300}</s>)"
    r"|<\|[a-z_]{2,30}\|>|<(?:end|start)_of_turn>|<eos>|\[/?INST\]|<</?SYS>>|\[TOOL_CALLS\]|<tool_call>"
    r"|^[^\S\n]*+</?s>|</?s>(?=[^\S\n]*+(?:$|<[/s|]|\[/?INST))",
    re.IGNORECASE | re.MULTILINE,
)
"""Tokens that chat templates put between turns; what follows them is another turn.

`<s>` is one only where a line begins or ends, or another token follows. Within a line, `<s>…</s>` is HTML.
"""

_ITS_TASK = (
    r"(?:summari[sz]\w+ (?:this|it|the (?:record|conversation|chat|dialogue|exchange))|(?:the|a|my) (?:\w+ )?summary"
    r"|the record|(?:intent|state|decisions?|open items) section|sections?)\b"
)
"""What a model names when it thinks aloud about its task; up to THOUGHT_CHARACTERS stand before it in a sentence."""

THOUGHT_CHARACTERS = 160
_THOUGHT = re.compile(
    r"hmm+\b|(?:okay|ok|alright|wait)[,.]++ so (?:i|we|the (?:user|task)|let|what)\b"
    r"|(?:(?:okay|ok|alright|wait|well|right|so|now|first|then|next|actually)[,.:]?\s++){0,3}+"
    r"(?:let['’]s (?:think|see|look|break|analy[sz]e|summari[sz]e|draft)\b"
    r"|let me (?:think|see|start|begin|go (?:through|over|back)|look|re-?read|break|analy[sz]e|identify|extract|first"
    r"|check|try|draft|write|summari[sz]e|figure|recall|review)\b"
    r"|(?:i|we)(?:['’](?:ll|m|re)| am| are)? (?:(?:now|also|just|first) )?(?:need to|have to|should|must|will|can|could"
    rf"|going to|asked to|supposed to|write|summari[sz]e)\b[^.!?\n]{{0,{THOUGHT_CHARACTERS}}}\b{_ITS_TASK}"
    r"|the (?:user|task|system prompt|prompt|request|instructions?) (?:is|are|asks|wants|says?|requires?|tells?)\b"
    rf"[^.!?\n]{{0,40}}\b(?:me|i|us|we)\b[^.!?\n]{{0,{THOUGHT_CHARACTERS}}}\b{_ITS_TASK})",
    re.IGNORECASE,
)
"""Beginnings of sentences in which a model thinks aloud about its task."""

_LETTER = re.compile(
    r"\A\s*+(?:dear|hi|hello|hey|liebe[rs]?|sehr geehrte[rs]?|hallo|estimad[oa]s?|querid[oa]s?|hola|chère?s?|bonjour)"
    r" [^,:.!?\n]{1,40},\s",
    re.IGNORECASE,
)
_SECTION = re.compile(r"^#{1,4} \w", re.MULTILINE)
_PART_START = re.compile(r"\n(?=#{1,4} )|\n[^\S\n]*+\n")
"""Where a paragraph or a section begins."""

_SPEAKER = re.compile(
    r"^[*_#\s]{0,6}(user|human|assistant|ai|bot|nutzer|assistent|usuario|asistente|用户|助手)[*_]{0,2}\s?[:：](.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_SPOKEN = re.compile(
    r"\b(?:i|i['’]\w+|me|my|you|your|let['’]s|ich|mir|mein\w*|du|dir|dein\w*|wir|yo|mi|tú|je|tu|vous|votre)\b"
    r"|[?？¿]|[你您我]",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|„[^“”\n]{0,400}[“”]|«[^»\n]{0,400}»")
_MARK = re.compile(r"[\[<]#{1,3}(\d+) (?:user|assistant|tool|calls)\b[^\[\]<>\n]{0,80}[\]>]")
_ROLE = r"(?:user|assistant|tool|calls)\b[*_]{0,2}(?: \([^()\n]{0,40}\))?[*_]{0,2}"
_NUMBER_IN_MARKS = r"[\[(<]?#{1,3}\d{1,9}[\])>]?[*_]{0,2}"
_COPIED_MARK = re.compile(rf"[\[(<]#\d{{1,9}} {_ROLE}[\])>]", re.IGNORECASE)
_SPEAKER_MARK = re.compile(
    rf"(?:{_NUMBER_IN_MARKS}[ ,:|/-]{{1,3}}[*_]{{0,2}}{_ROLE}|(?:user|assistant)[*_]{{0,2}} ?{_NUMBER_IN_MARKS})"
    r" ?:(.*)",
    re.IGNORECASE,
)
"""A speaker with one position, as in `user (#1): …`; a report of what a speaker said may begin so, too."""

COPIED_CHARACTERS = 20
"""Length of a message's beginning by which a copied line is known."""

_GAP = re.compile(r"(\n\s*+|(?<=[.!?])[^\S\n]++|(?<=[。！？])[^\S\n]*+)")
"""Space between two sentences or lines."""

_WORD, _LETTERS = re.compile(r"\w+"), re.compile(r"[^\W\d_]+")
_NUMBER_OR_NAME = re.compile(r"\d|(?<=[^\W\d_] )(?!I\b)[^\W\d_a-zß-ÿ]\w|(?<=[,;] )(?!I\b)[A-ZÀ-ÖØ-Þ]\w")
_ORDER = re.compile(
    r"(?:\A|[:：])\s*+(?:(?:please|bitte|always|never|immer|nie|siempre|nunca|toujours|also|and|then)\s++){0,2}(?:write|add|end|append"
    r"|finish|begin|start|answer|reply|respond|recommend|say|tell|put|format|translate|compose|sign|close|repeat|print"
    r"|output|return|summari[sz]e|include|mention|list|focus|ignore|omit|do not|don['’]t|be"
    r"|schreib\w*|füg\w*|beende\w*|antworte\w*|nenn\w*|verwende\w*|fass\w*|escrib\w+|añad\w+|termin\w+|respond\w+"
    r"|menciona\w*|usa|écri\w+|ajoute\w*|répond\w*|mentionne\w*|utilise\w*)\b"
    r"|\b(?:summar(?:y|ies)|answers?|repl(?:y|ies)|responses?|headings?|zusammenfassung\w*|antwort\w*|resumen|respuestas?"
    r"|résumé|réponses?)\b",
    re.IGNORECASE,
)
"""Sentences that ask for something of a text to write."""


def clean_summary(
    text: str, sources: str = "", orders: str = "", *, limit: str = "", may_be_spoken: bool = False
) -> str:
    """Return `text` without what surrounds a summary; '' if nothing else is in it.

    `sources` is what the model read: a template's token in it may stand in the summary, too. `orders` is what else was
    asked of the model: a whole sentence of it is for the summary alone, and no later reader may follow it, unless it
    tells a number or a name. `limit` is the asked length, such as `149 words`. `may_be_spoken`: a dialogue
    or a letter was asked for.

    Removed are, in this order, everything from a chat template's token or a continued dialogue on, the request's own
    sentences, prefaces, what the model thinks aloud, and closing words to the reader. A tag of the record becomes a
    citation of its position.
    """
    text = _first_turn(text, sources)
    text = text if may_be_spoken else _without_dialogue(text)
    length = re.compile(rf"\b{limit}\b".replace(" ", r"[\s_*-]{1,3}")) if limit else None
    if length and length.search(sources):
        length = None
    text = _without_task(text, {_letters(one) for one in _sentences(orders) if not _tells(one)}, length)
    text = _without_preface(_without_thoughts(_MARK.sub(r"[#\1]", text)), sources)
    text = text if may_be_spoken else _without_letter(text)
    return _without_closing(_without_thoughts(text)).strip()


def count_marks(text: str, record: str = "") -> tuple[int, int]:
    """Return the number of lines that begin with a tag of the `record`, and of all lines that are not blank.

    A line with a position and a speaker in other marks counts if the speaker says `I`, or the record has it.
    """
    known = {_MARK.sub("", line, count=1).strip()[:COPIED_CHARACTERS] for line in record.splitlines()}
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(1 for line in lines if _is_marked(line.lstrip(" -*>_•"), known)), len(lines)


def _is_marked(line: str, known: Collection[str]) -> bool:
    if _MARK.match(line) or _COPIED_MARK.match(line):
        return True
    said = _SPEAKER_MARK.match(line)
    words = said[1].strip(" *_") if said else ""
    return _is_spoken(words) or (len(words) >= COPIED_CHARACTERS and words[:COPIED_CHARACTERS] in known)


def _is_spoken(words: str) -> bool:
    """Return whether somebody speaks of `I` and `you`, outside quotation marks."""
    return bool(_SPOKEN.search(_QUOTED.sub("", words)))


def _first_turn(text: str, sources: str) -> str:
    """Return the text before a token that ends a turn."""
    text = text.strip()
    ends = [end for end in _SPECIAL.finditer(text) if not end["struck"] and end.group() not in sources]
    parts = zip((0, *(end.end() for end in ends)), (*(end.start() for end in ends), len(text)), strict=True)
    return next((part for start, stop in parts if (part := text[start:stop]).strip()), "")


def _without_dialogue(text: str) -> str:
    """Return the text before a dialogue that the model goes on with.

    A dialogue has lines of both speakers, most of which speak of `I` and `you`. A summary by speakers reports instead.
    """
    lines = [line for line in _SPEAKER.finditer(text) if "[#" not in line[2]]
    spoken = sum(1 for line in lines if _is_spoken(line[2]))
    if len({line[1].lower() for line in lines}) > 1 and 2 * spoken >= len(lines):
        return text[: lines[0].start()]
    return text


def _tells(sentence: str) -> bool:
    """Return whether a sentence of what was asked tells a fact, and asks for nothing that the text has to be."""
    return bool(_NUMBER_OR_NAME.search(sentence)) and not _ORDER.search(sentence)


def _without_letter(text: str) -> str:
    """Return the text without the beginning of a letter before the first section; '' if it is a letter to its end."""
    if not (_LETTER.match(text) and _is_spoken(text)):
        return text
    section = _SECTION.search(text)
    return text[section.start() :] if section else ""


def _has_thought(text: str) -> bool:
    return any(map(_THOUGHT.match, _sentences(text.lstrip())))


def _without_thoughts(text: str) -> str:
    """Return the text behind the paragraphs in which the model thinks aloud, if it begins with one.

    A preface such as `Let me summarise the conversation:` is no thought if none follows.
    """
    preface = _PREFACE.match(text)
    if not _THOUGHT.match(text) or (preface and not _has_thought(text[preface.end() :])):
        return text
    parts = _PART_START.split(text)
    last = max((at for at, part in enumerate(parts) if _has_thought(part)), default=0)
    return "\n\n".join(parts[last + 1 :])


def _without_task(text: str, orders: Collection[str], length: re.Pattern[str] | None) -> str:
    """Return the text without sentences of the request's task and `orders`; '' if they are half of it.

    Sentences that name the asked `length` are of the task, too.
    """
    pieces = [(piece, "" if piece.startswith("#") else _letters(piece)) for piece in _sentences(text)]
    words = sum(len(plain.split()) for _, plain in pieces)
    kept = [
        (piece, plain)
        for piece, plain in pieces
        if not _is_of_task(plain, orders) and not (length and length.search(piece))
    ]
    if words and 2 * sum(len(plain.split()) for _, plain in kept) <= words:
        return ""
    return "".join(piece for piece, _ in kept)


def _sentences(text: str) -> list[str]:
    """Return the sentences and lines of `text`, each with the space behind it; joined they are the text."""
    parts = [*_GAP.split(text), ""]
    return [part + gap for part, gap in zip(parts[::2], parts[1::2], strict=True)]


def _is_of_task(plain: str, orders: Collection[str]) -> bool:
    return plain.count(" ") + 1 >= TASK_WORDS and (plain in orders or plain in _task())


@cache
def _task() -> str:
    tasks = (summary_prompt.SUMMARISER_SYSTEM_PROMPT, summary_prompt.SEGMENT_TASK, summary_prompt.MERGE_TASK, KEEP_TASK)
    return _letters("\n".join(tasks))


def _letters(text: str) -> str:
    """Return the words without numbers: citations are removed from a text before it is compared with its task."""
    return " ".join(_LETTERS.findall(text.casefold()))


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def _without_preface(text: str, sources: str) -> str:
    """Return the text without prefaces. A sentence of the sources in the first person is none."""
    for _ in range(MOST_PARTS):
        found = _INTERJECTION.match(text) or _PREFACE.match(text) or _VOICE.match(text)
        if not found or (found.re is _VOICE and found.group().strip() in sources):
            return text
        text = text[found.end() :]
    return text


def _without_closing(text: str) -> str:
    """Return the text without sentences at its end that address the reader; a cited or listed one stays."""
    for _ in range(MOST_PARTS):
        text = text.rstrip()
        inner = len(text.rstrip(_ENDS + _QUOTES))
        start = max(text.rfind(end, 0, inner) for end in _ENDS) + 1
        line = text[text.rfind("\n") + 1 :]
        last = text[start:]
        is_kept = "[#" in last or _LISTED.match(line) or len(last) > CLOSING_CHARACTERS
        if is_kept or not _CLOSING.match(last):
            return text
        text = text[:start]
    return text


def without_loops(text: str) -> str:
    """Return the text without repetitions of sentences that stand in it more than MOST_TIMES times.

    It is '' if it has nothing but one such sentence. A sentence may be repeated below another item of a list or behind
    other words, at most TIMES_IN_A_LIST times.
    """
    pieces = [(piece, _plain(piece)) for piece in _sentences(text)]
    times = Counter(plain for _, plain in pieces)
    looped = {plain for plain, count in times.items() if _is_looped(plain, count)}
    if looped and sum(1 for plain in times if _LETTERS.search(plain)) == 1:
        return ""
    return "".join(_firsts(pieces, times, looped)) if looped else text


def _is_short(plain: str) -> bool:
    return plain.count(" ") + 1 < LOOPED_WORDS


def _is_looped(plain: str, times: int) -> bool:
    if _is_short(plain):
        return times > SHORT_TIMES and bool(_LETTERS.search(plain))
    return times > MOST_TIMES


def _firsts(pieces: list[tuple[str, str]], times: Counter[str], looped: Collection[str]) -> Iterator[str]:
    """Yield the pieces without repetitions; the citation behind a repetition is left out, too.

    A looped sentence is new again behind a new line, or behind WORDS_BETWEEN words, that the text has nowhere else.
    """
    told: dict[str, int] = {}
    new, is_line, is_left_out = 0, True, False
    for piece, plain in pieces:
        has_letters = bool(_LETTERS.search(plain))
        if plain in looped:
            is_again = new - told.get(plain, -WORDS_BETWEEN) >= (1 if _is_short(plain) else WORDS_BETWEEN)
            is_too_often = times[plain] > TIMES_IN_A_LIST and not _is_short(plain)
            is_left_out = plain in told and (not is_again or is_too_often)
            told[plain] = new
        elif has_letters or not is_left_out:
            is_left_out = False
            if has_letters and times[plain] <= MOST_TIMES:
                new += WORDS_BETWEEN if is_line else plain.count(" ") + 1
        is_line = "\n" in piece or (is_line and not has_letters)
        if not is_left_out:
            yield piece
