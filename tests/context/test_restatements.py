"""Whether a sentence gives another value to what an earlier sentence states."""

import json

import pytest

from benchmarks.replay_data import SAMPLE
from context.strategies import Said, by_length, stored
from fakes.growth import grows_linearly
from throughline.context.summaries.find_facts import facts_of, found_facts, without_kept
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.context.summaries.restatements import restates
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact

CANARIES = json.loads((SAMPLE / "canaries.json").read_text("utf-8"))
STATEMENTS = [
    *(one["text"] for kind in CANARIES["canaries"].values() for one in kind),
    *(pair[name] for pair in CANARIES["restated"] for name in ("before", "after")),
    *(pair[name] for pair in CANARIES["twins"] for name in ("one", "other")),
]
RESTATED = [(pair["before"], pair["after"]) for pair in CANARIES["restated"]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *RESTATED,
        ("Das Budget ist 4.000 Euro.", "Das Budget ist jetzt 5.500 Euro."),
        ("Die Frist ist der 3. Mai.", "Die Frist ist auf den 17. Mai verschoben."),
        ("El presupuesto es 400 euros.", "El presupuesto ahora es 500 euros."),
        ("Le budget est de 400 euros.", "Le budget est maintenant de 500 euros."),
        ("截止日期是5月3日。", "截止日期改到5月17日。"),
        ("The deadline is Friday.", "The deadline has been pushed to Monday."),
        ("The server is called db-prod-3.", "The server has been renamed to db-prod-9."),
        ("The deadline is Friday.", "The deadline is not Friday, it is Monday."),
        ("The meeting is on Monday at 10.", "The meeting moved from Monday to Tuesday at 11."),
        ("My budget is 500 euros.", "My budget is not 500 euros."),
        ("I prefer tea.", "Actually, I prefer coffee."),
    ],
)
def test_another_value_of_the_same_thing_replaces_the_first(before: str, after: str) -> None:
    assert restates(before, after)

    messages = stored([Said(Role.USER, before), Said(Role.ASSISTANT, "Noted."), Said(Role.USER, after)], by_length)
    kept = merge_kept_facts((), found_facts(messages))
    assert [fact.replaced_by for fact in kept if fact.text == before] in ([], [3])


def test_no_other_two_statements_replace_each_other() -> None:
    wrong = [
        (one, other)
        for one in STATEMENTS
        for other in STATEMENTS
        if one != other and restates(one, other) and not {(one, other), (other, one)} & set(RESTATED)
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I am allergic to nuts.", "I am allergic to shellfish."),
        ("The server is called db-prod-3.", "We talked about part 3 and moved on."),
        ("The server is in Frankfurt.", "The server is called db-prod-3."),
        ("The budget is 4,000 euros.", "The budget covers 3 flights."),
        ("We need flour.", "We need eggs now."),
        ("My budget is 500 euros.", "My budget is not 900 euros."),
        ("The deadline is Friday.", "The deadline is not Monday."),
        ("My manager is Anna.", "My manager is not Ben."),
        ("Ben changed the door.", "Ben changed the lock."),
        ("The meeting is on Monday.", "The meeting is with Anna."),
        ("The meeting is on Monday.", "The meeting is in Berlin."),
        ("My sister is Anna.", "My sister is 30."),
        ("My sister is Anna.", "My sister is in Rome."),
        ("My flight is LH123.", "My flight is at 9:40."),
        ("The party is at 8.", "The party is on May 9."),
        ("The rent is 900.", "The rent is due on 3 May."),
        ("My manager is Anna.", "My manager is Ben's friend."),
        ("The server is db1.", "The server was db0 before."),
        ("My allergy is Ibuprofen.", "My allergy is Penicillin."),
        ("The open ticket is A-12.", "The open ticket is A-13."),
        ("The price is 80 in Rome.", "The price is 90 in Oslo."),
        ("Invoice 12 is due on 3 May.", "Invoice 13 is now due on 9 June."),
        ("The rent in Berlin is 900 euros.", "The rent in Munich is 1200 euros now."),
        ("Room 12 is booked for Anna.", "Room 14 is now booked for Ben."),
        ("Our server in Berlin has 8 cores.", "Our new server in Paris has 16 cores."),
        ("My flight to Rome is LH123.", "My new flight to Oslo is SK456."),
        ("Die Wohnung in Berlin kostet 900 Euro.", "Die neue Wohnung in München kostet 1200 Euro."),
        ("Meet Anna on Monday at 10.", "Meet Ben on Tuesday at 11 instead."),
        ("Task 5 takes 3 days.", "Task 6 takes 8 days plus tests."),
        ("Meine Tochter Anna ist 7.", "Meine Tochter Berta ist jetzt 9."),
        ("Der Zug nach Husum hält in Bremen.", "Der Zug nach Kiel hält jetzt in Bremen."),
        ("Der Bus fährt nach Kiel.", "Der Bus fährt jetzt nach Fahrplan."),
        ("Die Miete ist 700 Euro nach 2023.", "Die Miete ist 700 Euro nach 2024."),
        ("Server web1 has IP 10.0.0.1.", "Server web2 now has IP 10.0.0.2."),
        ("I'm using Flask 2.3.1 and Flask-WTF 1.1.1.", "I'm using Flask 2.3.1 and SQLAlchemy 2.0.19, it is set up."),
    ],
)
def test_further_statements_about_a_thing_replace_nothing(one: str, other: str) -> None:
    assert not restates(one, other)
    assert not restates(other, one)

    for said in ((one, other), (other, one)):
        kept = merge_kept_facts((), found_facts(stored([Said(Role.USER, text) for text in said], by_length)))
        assert [fact.text for fact in kept if fact.replaced_by] == []


def merged(*said: str) -> list[tuple[str, int]]:
    """Return what is kept of a user's messages, each summarised by itself, with what replaced it."""
    facts: tuple[KeptFact, ...] = ()
    for position, text in enumerate(said, start=1):
        messages = stored([Said(Role.USER, text)], by_length, first=position)
        facts = merge_kept_facts(facts, facts_of(messages, (), facts))
    return [(fact.text, fact.replaced_by) for fact in facts]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I'm allergic to Penicillin.", "My son is not allergic to Penicillin."),
        ("I live in Berlin.", "My brother does not live in Berlin."),
        ("The meeting with Dr. Hall is on Monday.", "Don't forget the meeting with Dr. Hall on Monday."),
        ("I'm allergic to peanuts.", "My son is no longer allergic to peanuts."),
        ("I take Ramipril.", "My father does not take Ramipril."),
        ("I like Italian food.", "My wife does not like Italian food."),
        ("We use Redis.", "The old team does not use Redis."),
        ("My rent is 900 euros.", "My rent should not be above 900 euros."),
        ("I work at Siemens.", "I used to work at Bosch, not at Siemens."),
        ("I cancelled the flight to Rome.", "I cancelled the flight to Oslo."),
        ("We do not use Kafka anymore.", "We do not use Redis anymore."),
        ("The order 4711 is cancelled.", "The order 4712 is cancelled."),
        ("We have a new customer called Acme.", "We have a new customer called Globex."),
        ("I have a new colleague, Petra.", "I have a new colleague, Olaf."),
        ("Ticket 101 is now closed.", "Ticket 102 is now closed."),
        ("Room 12 is for Anna.", "Room 14 is for Anna now."),
        ("I do not eat pork on Fridays.", "I do not eat pork on Mondays."),
        ("I moved the meeting with Anna to Monday.", "I moved the meeting with Ben to Monday."),
        ("Build 512 went red.", "Build 514 went red."),
        ("We fly to Rome on 3 May.", "We fly back on 10 May now."),
        ("The budget is 5000 euros.", "If the budget is 7000 euros, we could add a pool now."),
        ("On Monday I went up 3 floors.", "On Friday I went up 3 floors."),
        ("The train leaves at 8:00.", "The train leaves at 10:00."),
        ("The demo is on Monday in Oslo.", "The demo was moved to Rome."),
        ("The meeting with Anna is on Monday.", "The meeting with Ben was moved to Tuesday."),
        ("The budget is 500 euros.", "Last year the budget was 300 euros, not more."),
        ("The hall costs 900 EUR on Friday.", "The hall costs 950 EUR on Sunday."),
        ("The run took 3 hours.", "No, 5 minutes."),
        ("The heap is 3,000 MB.", "No, I have 5 cats."),
        ("The service listens on port 8003.", "Is it port 8004?"),
        ("We fly at 10:30.", "We should be there at 9:30."),
    ],
)
def test_a_denial_or_a_change_of_something_else_ends_nothing(one: str, other: str) -> None:
    assert [text for text, replaced_by in merged(one, other) if replaced_by] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The wedding is on 12 June.", "The wedding is cancelled."),
        ("I am vegetarian.", "I am no longer vegetarian."),
        ("I'm vegan.", "I'm not vegan anymore."),
        ("I work at Siemens.", "I left Siemens and work at Bosch now."),
        ("My favourite colour is green.", "My favourite colour is blue."),
        ("My email is a@x.de.", "My email is b@x.de."),
        ("The deadline has moved to Friday.", "The deadline has moved to Monday."),
        ("My budget is 500 euros now.", "My budget is 700 euros now."),
        ("The visit takes place on 21 June.", "The visit takes place on 11 March, the old slot is gone."),
        ("The pickup is done by Fastlane.", "The pickup will be done by Swiftway, the other firm is full."),
        ("El presupuesto de la fiesta es de 5.492 euros.", "Hemos bajado el presupuesto de la fiesta a 1.600 euros."),
        ("Die Trainerin heißt Svenja Uhlig.", "Die neue Trainerin ist Petra Zander."),
        ("房租每月4573元。", "房租涨到每月4807元了。"),
        ("The migration runs on 9 April.", "The migration was pushed to 6 June."),
        ("Die Sitzung ist am Montag um 10.", "Die Sitzung wurde auf Dienstag verschoben."),
    ],
)
def test_what_is_taken_back_or_given_another_value_is_replaced(one: str, other: str) -> None:
    assert (one, 2) in merged(one, other)


@pytest.mark.parametrize(
    ("subject", "before", "after"),
    [
        ("hotel Rome", "The hotel in Rome costs 80 euros.", "The hotel in Oslo now costs 120 euros."),
        ("sister", "My sister is allergic to nuts.", "My sister is now in Rome."),
        ("server", "The server runs on port 8080.", "The new server room is in Oslo."),
        (
            "dinner with Anna",
            "The dinner with Anna is on 3 May.",
            "Do not worry, the dinner with Anna is not cancelled.",
        ),
        ("call with Ida", "The call with Ida is on Tuesday at 15:15.", "Please don't forget the call with Ida."),
        ("call with Ida", "The call with Ida is on Tuesday at 15:15.", "The call with Ida has not changed."),
        ("Termin mit Eva", "Der Termin mit Eva ist am Montag.", "Vergiss bitte nicht den Termin mit Eva."),
        ("IBAN von Ute", "Die IBAN von Ute ist DE47 8928 8928.", "Die IBAN von Ute hat sich nicht geändert."),
        ("cita con Eva", "La cita con Eva es el martes a las 15:15.", "No olvides la cita con Eva."),
        ("rendez-vous avec Eva", "Le rendez-vous avec Eva est mardi à 15:15.", "N'oublie pas le rendez-vous avec Eva."),
    ],
)
def test_a_sentence_about_something_else_or_a_reminder_ends_no_named_fact(
    subject: str, before: str, after: str
) -> None:
    messages = stored([Said(Role.USER, before), Said(Role.USER, after)], by_length)
    named = KeptFact(FactKind.VALUE, before, 1, subject=subject, chosen=1)

    kept = merge_kept_facts((), facts_of(messages, [named], ()))

    assert [fact.replaced_by for fact in kept if fact.text == before] == [0]


@pytest.mark.parametrize(
    ("before", "after", "about"),
    [
        ("The parking permit carries PK-2041.", "Sorry, I misread it, PK-5857 it is.", "The parking permit carries"),
        ("Yoga begins at 12:10.", "Ah no, 15:11.", "Yoga begins at"),
        ("The stage rent is 5,932 EUR.", "No wait, make that 6,932 EUR.", "The stage rent is"),
        ("The fence is 60.5 metres long.", "Sorry, that should be 71.6 metres.", "The fence is"),
        ("Die Sitzung ist um 12:30.", "Nein, Moment, 13:30.", "Die Sitzung ist um"),
    ],
)
def test_a_correction_in_few_words_replaces_what_was_said_just_before(before: str, after: str, about: str) -> None:
    for at, replaced_by, subject in ((5, 5, about), (25, 0, "")):
        facts: tuple[KeptFact, ...] = ()
        for position, text in ((1, "We have 12 chairs."), (3, before), (at, after)):
            messages = stored([Said(Role.USER, text)], by_length, first=position)
            facts = merge_kept_facts(facts, facts_of(messages, (), facts))

        kept = {fact.text: (fact.replaced_by, fact.subject) for fact in facts}
        assert kept == {"We have 12 chairs.": (0, ""), before: (replaced_by, ""), after: (0, subject)}


@pytest.mark.parametrize(
    "said",
    [
        ("My rent is 900 euros.", "Anna comes on Monday.", "My dog is called Rex.", "No, 5 euros."),
        ("The lunch costs 15 euros.", "I have no money, 3 euros."),
        ("The lunch costs 15 euros.", "There was a mistake on the bill, 3 euros."),
        ("The lunch costs 15 euros.", "The bill is wrong, 30 euros."),
        ("The flight is at 10:30.", "I can't wait, 8:30."),
        ("I get up at 6:30.", "I will wait for you at the station, 8:30."),
        ("The flight is on Monday.", "No school, Tuesday."),
        ("The run takes 12 minutes.", "No problem, 5 minutes."),
        ("I pay 30 euros.", "I have no idea, 40 euros."),
        ("My budget is 500 euros.", "No worries, I have 20 euros."),
        ("My budget is 500 euros.", "I actually like it here, 20 euros."),
        ("My budget is 500 euros.", "No, not 700 euros."),
        ("My budget is 500 euros.", "Sorry, not 700 euros."),
        ("Der Zug fährt um 10:30.", "Im Moment, 8:30."),
        ("Der Arzt hat um 10:30 Zeit.", "Der Bus ist falsch, 8:30."),
        ("The rent is 900 euros.", "The rent is 1200 euros, if we take the big flat."),
        ("The rent is 900 euros.", "The rent is 1200 euros, Anna says."),
        ("The rent is 900 euros.", "The rent is 1200 euros, I thought, but it is not."),
        ("The code is 1234.", "The code is 9999, Ben claims."),
        ("The price is 60 euros.", "The price is 30 euros, for children."),
        ("The dose is 20 mg.", "The dose is 10 mg, for adults."),
        ("My email is a@x.de.", "My email is b@x.de, for work."),
        ("My address is Hill Road 3.", "My address is Park Road 9, in summer."),
        ("The call is at 15:00.", "The call is at 16:00, Tokyo time."),
        ("Le billet coûte 20 euros.", "Le billet coûte 10 euros, pour les enfants."),
        ("I work at Bosch.", "I now work at Siemens, too."),
        ("The budget is 500 euros.", "The budget is 700 euros, in the other team."),
        ("The film starts at 18:00.", "The film starts at 21:00."),
        ("The shop opens at 8:00.", "The shop opens at 10:00 on Sundays."),
        ("The bus starts in Bonn.", "The bus starts in Rome."),
        (
            "The deadline for the thesis is Friday.",
            "The deadline for the tax return is on Monday.",
            "The deadline was pushed to Tuesday.",
        ),
        ("The rent is 900 euros.", "The rent was not raised to 1200 euros."),
        ("The rent is 900 euros.", "The rent was 800 euros before it went up."),
        ("The dinner with Ida is on Monday.", "The dinner with Tom is on Friday.", "The dinner was cancelled."),
        ("We use Postgres.", "We use Postgres, nobody uses MySQL any more."),
        ("My flight is on 3 May.", "My flight is on 3 May, the hotel fell through."),
        ("Keep all answers under 5 lines.", "No, 10 lines."),
        (
            "Breakfast is at 8:00.",
            "Lunch is at 11:00.",
            "My dog is called Rex.",
            "My cat is called Tom.",
            "Sorry, 20:00 it is.",
        ),
    ],
)
def test_what_is_said_of_another_thing_or_in_doubt_replaces_nothing(said: tuple[str, ...]) -> None:
    assert [text for text, replaced_by in merged(*said) if replaced_by] == []


def test_a_short_correction_corrects_once_however_often_it_is_merged() -> None:
    said = ("Lunch is at 11:00.", "Dinner is at 19:00.", "No wait, 20:00.", "My dog is called Rex.")
    facts: tuple[KeptFact, ...] = ()
    for position, text in enumerate((*said, "The party is at 19:00.", "No wait, 20:00."), start=1):
        messages = stored([Said(Role.USER, text)], by_length, first=position)
        facts = merge_kept_facts(facts, facts_of(messages, (), facts))

    kept = {fact.position: (fact.replaced_by, fact.subject) for fact in merge_kept_facts(facts, ())}

    assert kept == {
        1: (0, ""), 2: (3, ""), 3: (0, "Dinner is at"), 4: (0, ""), 5: (6, ""), 6: (0, "The party is at"),
    }  # fmt: skip


def said_by(*statements: tuple[str, str]) -> list[tuple[str, str, int]]:
    """Return what is kept of statements of several people, given as who and what."""
    facts = [
        KeptFact(FactKind.VALUE, text, at, author=author, is_unjudged=False)
        for at, (author, text) in enumerate(statements, start=1)
    ]
    return [(fact.author, fact.text, fact.replaced_by) for fact in merge_kept_facts(facts[:1], facts[1:])]


def test_what_somebody_says_of_themselves_is_not_replaced_by_what_another_says() -> None:
    mine, others = ("Anna", "My budget is 500 euros."), ("Ben", "My budget is 700 euros now.")

    assert said_by(mine, others) == [(*mine, 0), (*others, 0)]
    assert said_by(mine, ("Anna", "My budget is 700 euros now.")) == [(*mine, 2), ("Anna", others[1], 0)]
    assert said_by(mine, ("Ben", mine[1])) == [(*mine, 0), ("Ben", mine[1], 0)]


def test_of_a_thing_of_all_the_last_statement_of_anybody_holds() -> None:
    before, after = ("Anna", "The deadline is Friday."), ("Ben", "The deadline is now Monday.")

    assert said_by(before, after) == [(*before, 2), (*after, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        "The code of door {0} is {0}. The rent of flat {0} is {0} in Rome.",
        "My budget is {0} euros now.",
        "We no longer use Tool{0}, we use Box{0} for the queue.",
        "Anna met Ben in Rome with code {0} again and again.",
        "Locker {0} belongs to Anna.",
        "Ticket {0} is now closed.",
        "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 {0}.",
    ],
)
def test_facts_are_merged_in_proportion_to_their_number(form: str) -> None:
    def facts(number: int) -> tuple[KeptFact, ...]:
        return found_facts(stored([Said(Role.USER, form.format(at)) for at in range(number)], by_length))

    assert grows_linearly(lambda found: merge_kept_facts((), found), facts, 200)


def test_a_text_loses_the_lines_that_stand_among_the_facts_and_headings_of_nothing() -> None:
    (message,) = stored([Said(Role.USER, "The budget is 4,300 EUR. I want to launch in Brazil.")], by_length)
    text = "## State\n- The budget is 4,300 EUR. [#1]\n## Open items\n- The budget is tight. [#1]\n## Intent"

    assert without_kept(text, found_facts([message])) == "## Open items\n- The budget is tight. [#1]"
