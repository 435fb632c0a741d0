"""Summaries of small talk as a model of a hundred million parameters writes them: talk, loops, tales and tags."""

import pytest

from context.strategies import Said, by_length, stored
from context.test_weak_summaries import kept_of
from fakes.growth import grows_linearly
from throughline.context.summaries.clean_summary import TIMES_IN_A_LIST
from throughline.context.summaries.render_summary import CUT_MARK
from throughline.context.summaries.summary_prompt import (
    TextRequest,
    guidance_of,
    segment_request,
    summary_request,
)
from throughline.domain.message import Role

MOST = 300
"""Most tokens of a text, by one token per character; a model is asked for half as many words."""

TURNS = (
    ("I tidied up the kitchen.", "How amazing! You are such a wonderful friend with a beautiful home."),
    ("The report has to be finished by 14 March.", "We share the joy of reports with the whole world!"),
    ("My sister Ingrid lives in Bergen.", "Bergen is a market full of stories about medieval women."),
    ("Our budget for the trip is 2,400 euros.", "I'm so happy to share the gift of a party tonight with you!"),
    ("I am allergic to walnuts.", "A cake with candles is my favourite dessert, and the moon shines bright."),
    ("My phone is a Fairphone 5.", "The joke about the customers at the bakery is really funny, my dear."),
)
"""A conversation of short facts with an assistant who talks of something else."""


def request(
    turns: tuple[tuple[str, str], ...] = TURNS, existing: str = "", request_: str = "", most: int = MOST
) -> TextRequest:
    """The request for a summary of the turns."""
    roles = (Role.USER, Role.ASSISTANT)
    messages = stored([Said(role, text) for turn in turns for role, text in zip(roles, turn, strict=True)], by_length)
    guidance = guidance_of("", request_)
    prompt = (
        summary_request(existing, messages, most, guidance) if existing else segment_request(messages, most, guidance)
    )
    return TextRequest(prompt, most, 5000, (1, 200))


ASKED, SHORT = request(), request(TURNS[:1])
FACTS = "The user's sister Ingrid lives in Bergen, and the report is due on 14 March."
LONG_FACTS = f"{FACTS} The trip may cost 2,400 euros. The user has a Fairphone 5 and is allergic to walnuts."

REPEATED = {
    "a sentence": "The user has to remember that the report is only a summary. " * 19,
    "a line of the user": "I tidied up the kitchen.\n\n" * 25,
    "a word": "Sender:\n\n" * 45,
}

BAD = {
    "promises": "I'm glad you're happy with the summary. I'll make sure to keep it short and sweet. I'll add a few more"
    " details to make it even more interesting.",
    "promises about the user": "I'm glad the user is happy with the report. I'll make sure to keep it short.",
    "talk of happiness": "We're going to start again, and we're going to share a little bit of our happiness with you."
    " That's what we're going to do. You're going to share the trip with us.",
    "talk of a friend": "Once you've found your new adventure, feel free to share it with me, and I'm sure I'll be"
    " happy to have you as my friend. Your best gift is always your family's. I'd love to know more about the trip!",
    "talk of a party": "I just finished a long day planning a party tonight and I'm excited about it. I'm sure you'll"
    " be thrilled, and I'm glad you're with me. I'll bring the biggest balloons of Bergen.",
    "a question": "10. Now let me ask you a simple question: How do you make the trip to Bergen?",
    "two questions": "How is your sister? What is the budget of your trip?",
    "a tale": "The story of a medieval woman and her love has been passed down through generations, and the woman is on"
    " her way home to celebrate her special one. Many things have happened since they were here together.",
    "a fairy tale": "The Enchanted Moon\n\nTarget: The Enchanted Moon\n\nA lady in velvet slippers meets pirates.",
    "a note on a blog": "On the 28th of October 2023, the bakery wrote a note on its blog. They celebrate holidays with"
    " their staff and deliver the best products to everybody who visits their website in Bergen.",
    "tags with two signs": "**<##49 user (admin):** I'm so glad you liked the report!\n\n"
    "**##50 user (admin):** I was going to say that the trip to Bergen is late.",
}

CLEANED = {
    "promises before it": (
        f"I'm glad the user is happy with the report. I'll make sure to keep it short. {FACTS}",
        FACTS,
    ),
    "a line of the request": (f"{LONG_FACTS}\n**In the next 150 words**\n{FACTS}", f"{LONG_FACTS}\n{FACTS}"),
    "a sentence of the request": (f"The user adds a summary in 150 words. {LONG_FACTS}", LONG_FACTS),
    "a word again and again": (
        f"{FACTS}\n" + "Sender:\n" * 45 + "Ingrid has a cat.",
        f"{FACTS}\nSender:\nIngrid has a cat.",
    ),
    "a tag with two signs": (f"{FACTS} [##3 user (admin)]", f"{FACTS} [#3]"),
    "two marks of a cut": (f"{FACTS}{CUT_MARK}\n{FACTS}{CUT_MARK}", f"{FACTS}{CUT_MARK}\n{FACTS}"),
    "a mark in other words": (f"[The description was longer and is cut here.]\n\n{FACTS}", FACTS),
}

GOOD = (
    FACTS,
    "I tidied up the kitchen. My sister Ingrid lives in Bergen. Our budget for the trip is 2,400 euros.",
    "I'm allergic to walnuts. I'll finish the report by 14 March. We're going to spend 2,400 euros on the trip.",
    "You're allergic to walnuts. Your sister Ingrid lives in Bergen, and you'll finish the report by 14 March.",
    "The assistant told of a market full of stories about medieval women and of a cake with candles in the kitchen.",
    "Kitchen? Open. Report? Open. Trip? Open. Sister? Open. Budget? Open. Phone? Open. Walnuts? Open.",
    f"{LONG_FACTS}\n" + "\n".join(f"- task {number}\n  open" for number in range(TIMES_IN_A_LIST + 1)),
    "## Open items\nWhen does the user go to Bergen? How much may the trip cost?",
    "- When does the user go to Bergen?\n- How much may the trip cost?",
    "Open questions: When does the user go to Bergen? How much may the trip cost?",
    "When does the user go to Bergen? [#5]",
    "- kitchen: done\n- report: open\n- trip: open\n- sister: open\n- budget: open\n- phone: open\n- walnuts: open",
    "Kitchen\nopen\nReport\nopen\nTrip\nopen\nSister\nopen\nBudget\nopen\nPhone\nopen\nWalnuts\nopen",
)

GUIDED = (
    ("write it as I would", "I'm happy with my flat. I love the fjords and I'll climb the mountains with my boots."),
    ("only the open question", "When do you go to Bergen?"),
    ("auf Deutsch", "Die Schwester wohnt nicht in der Stadt, und der Bericht ist im März fertig. Keine Nüsse."),
)


@pytest.mark.parametrize("asked", [ASKED, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("kind", REPEATED)
def test_the_same_again_and_again_is_refused_whatever_it_stands_for(kind: str, asked: TextRequest) -> None:
    assert kept_of(REPEATED[kind], asked) is None


def test_a_record_that_repeats_a_few_words_may_have_a_text_that_does() -> None:
    text = "The hens are well. " * 19
    assert kept_of(text, request((("The hens are well. " * 40, "The hens are well. " * 40),))) == text.strip()


@pytest.mark.parametrize("kind", BAD)
def test_what_reports_nothing_of_small_talk_is_refused(kind: str) -> None:
    assert kept_of(BAD[kind], ASKED) is None


@pytest.mark.parametrize("kind", CLEANED)
def test_a_summary_of_small_talk_is_freed_of_what_stands_around_it(kind: str) -> None:
    text, expected = CLEANED[kind]
    assert kept_of(text, ASKED) == expected


@pytest.mark.parametrize("text", GOOD)
def test_a_good_summary_of_small_talk_is_kept_as_it_is(text: str) -> None:
    assert kept_of(text, ASKED) == text


def test_a_length_that_users_speak_of_is_not_the_one_of_the_request() -> None:
    text = f"The report of 14 March must have at most 150 words. {FACTS}"
    turns = (("My teacher says: at most 150 words for the report of 14 March.", "I see."), *TURNS)

    assert kept_of(text, request(turns)) == text


@pytest.mark.parametrize(("request_", "text"), GUIDED)
def test_what_a_user_asked_of_it_is_not_judged_by_what_users_say(request_: str, text: str) -> None:
    asked = request(request_=request_)
    assert kept_of(f"{text} Bergen.", asked) == f"{text} Bergen."


TALES = "The user hears tales of medieval women at the market, of balloons and of velvet slippers for pirates."


def test_a_summary_may_repeat_the_existing_one_where_nothing_new_is_said() -> None:
    rows = (
        "Fine, thanks.",
        "It was windy, and the neighbours were loud again.",
        "I watched a film, it was too long.",
        "A hedgehog sleeps in the garden.",
    )
    asked = request(tuple((row, "I see, that sounds like a quiet Sunday.") for row in rows), existing=LONG_FACTS)
    again = " ".join(reversed(LONG_FACTS.split(". ")))

    assert kept_of(again, asked) == again
    assert kept_of(f"{FACTS} {TALES}", asked) is None


def test_users_who_speak_another_language_than_the_assistant_are_no_measure() -> None:
    turns = (
        ("Meine Schwester wohnt in der Stadt und hat nicht viel Zeit, das ist schade.", "She lives in the city."),
        ("Die Brücke wird morgen gesperrt, der Umweg dauert zwanzig Minuten.", "The bridge is closed tomorrow."),
    )
    text = "The sister of the user lives in the city. The bridge is closed tomorrow, with a detour."

    assert kept_of(text, request(turns)) == text


def test_a_text_that_holds_a_mark_is_cut_with_one_mark() -> None:
    text = f"{LONG_FACTS}{CUT_MARK}\n{LONG_FACTS} Ingrid has a cat. The kitchen is tidy.{CUT_MARK}"
    new, extended = (request(existing=existing, most=60) for existing in ("", FACTS))

    for asked in (new, extended):
        kept = kept_of(text, asked)
        assert kept is not None
        assert kept.count(CUT_MARK) == 1
        assert by_length(kept) <= 60


@pytest.mark.parametrize(
    "piece",
    ["I'm glad you. ", "I'm glad you ", "Sender:\n", CUT_MARK, "[The a ", "[The " + "a" * 50, "Do I? ", "1. Do I?\n",
     "**##1 user (a): I am\n", "in 150 words ", "I'm sure. ", "my dear ", "\n[#1 user] a\n"],
)  # fmt: skip
def test_the_checks_of_talk_take_time_in_proportion_to_the_text(piece: str) -> None:
    asked = TextRequest(ASKED.prompt, 60_000, 900_000, (1, 200))

    assert grows_linearly(lambda text: kept_of(text, asked), lambda size: piece * size, 2000)


def test_the_comparison_with_users_takes_time_in_proportion_to_the_record() -> None:
    def judge(record: TextRequest) -> None:
        kept_of(LONG_FACTS, record)

    assert grows_linearly(judge, lambda size: request(tuple(TURNS * size)), 60)
