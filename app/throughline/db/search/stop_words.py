"""Stop words, neither indexed nor searched: words so common that they say nothing about a text's subject.

The lists are short. Words such as `how` and `about` get a low weight by their frequency, but may be a query's only
match.
"""

import re

LISTS = {
    "english": """
        a am an and are as at be been but by can could d did do does don for from had has have he her him his
        i if in into is it its just ll m me my no not of on or our re s she should so some such t that the
        their then there these they this to us ve was we were will with would you your""",
    "german": """
        aber als am an auch auf aus bei bin bis bist da das dass dem den der des die dies diese dieser du ein eine
        einem einen einer er es für hat ich ihr im in ist ja kann man mich mir mit nach nicht noch nur ob oder sein
        sich sie sind so und uns vom von vor war was wenn wer wie wir wird zu zum zur""",
    "french": """
        au aux avec ce ces dans de des du elle en est et il ils je la le les leur lui ma mais me mon ne nous on ou
        par pas pour qu que qui sa se ses son sont sur ta te tu un une vos votre vous""",
    "spanish": """
        al como con de del el ella en es esta este la las le les lo los me mi mis muy más ni no nos o para pero por
        que se si sin su sus te tu un una uno y ya yo""",
}

STOP_WORDS = {language: frozenset(words.split()) for language, words in LISTS.items()}
"""Stop words by language. A language without a list has none, which only makes the index larger."""

_WORD = re.compile(r"[^\W\d_]+")


def stop_words_of(text: str) -> frozenset[str]:
    """Return the stop words of the language from whose list the text has the most words.

    They are the English ones if no list has any of its words, so that none of its words is left out. They are none if
    the text has no words.
    """
    words = {word.lower() for word in _WORD.findall(text)}
    return max(STOP_WORDS.values(), key=lambda listed: len(words & listed)) if words else frozenset()
