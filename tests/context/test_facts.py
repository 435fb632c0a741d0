"""Facts found in text: what counts as one, what it looks like, and how long the search takes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.growth import grows_linearly
from throughline.context.summaries.facts import FACT_CHARACTERS, find_facts
from throughline.domain.ledger import LedgerKind

PATH, URL, IDENTIFIER = LedgerKind.PATH, LedgerKind.URL, LedgerKind.IDENTIFIER
NUMBER, DATE, COMMAND, ERROR = LedgerKind.NUMBER, LedgerKind.DATE, LedgerKind.COMMAND, LedgerKind.ERROR

FOUND = (
    ("look at /etc/nginx/nginx.conf, please", PATH, "/etc/nginx/nginx.conf"),
    ("in app/main.py:12: broken", PATH, "app/main.py:12"),
    ("open (notes.md).", PATH, "notes.md"),
    ("see app/context/plan for it", PATH, "app/context/plan"),
    ("run ./configure now", PATH, "./configure"),
    (r"it is C:\Users\me\file.txt, I think", PATH, r"C:\Users\me\file.txt"),
    ("my .env is wrong", PATH, ".env"),
    ("请看/etc/hosts文件", PATH, "/etc/hosts"),
    ("見てhttps://example.com/aをください", URL, "https://example.com/a"),
    ("see https://example.com/a/b?c=d#e.", URL, "https://example.com/a/b?c=d#e"),
    ("(https://en.wikipedia.org/wiki/A_(b))", URL, "https://en.wikipedia.org/wiki/A_(b)"),
    ("docs.python.org/3/library has it", URL, "docs.python.org/3/library"),
    ("mail bob.smith+x@example.co.uk!", IDENTIFIER, "bob.smith+x@example.co.uk"),
    ("id 123e4567-e89b-12d3-a456-426614174000.", IDENTIFIER, "123e4567-e89b-12d3-a456-426614174000"),
    ("commit 3f2a9bc broke it", IDENTIFIER, "3f2a9bc"),
    ("JIRA ABC-123 is open", IDENTIFIER, "ABC-123"),
    ("reservation HATHAT please", IDENTIFIER, "HATHAT"),
    ("order #W1234567 is late", IDENTIFIER, "#W1234567"),
    ('{"order_id": "#W7654321"}', IDENTIFIER, "#W7654321"),
    ('"user_id": "mia_li_3668"', IDENTIFIER, "mia_li_3668"),
    ("fixed in #482 now", IDENTIFIER, "#482"),
    ("flight HAT136 left", IDENTIFIER, "HAT136"),
    ("rename total_price soon", IDENTIFIER, "total_price"),
    ("call app.context.plan here", IDENTIFIER, "app.context.plan"),
    ("the `PaymentService` class", IDENTIFIER, "PaymentService"),
    ("upgrade to v1.2.3-rc1", IDENTIFIER, "v1.2.3-rc1"),
    ("on Python 3.11, it works", IDENTIFIER, "Python 3.11"),
    ("at 10.0.0.1:8080.", IDENTIFIER, "10.0.0.1:8080"),
    ("localhost:3000 is up", IDENTIFIER, "localhost:3000"),
    ("on port 5432.", IDENTIFIER, "port 5432"),
    ("costs $1,299.99.", NUMBER, "$1,299.99"),
    ("pay 45 EUR", NUMBER, "45 EUR"),
    ("took 12.5 ms.", NUMBER, "12.5 ms"),
    ("99.9% of it", NUMBER, "99.9%"),
    ("we have 42 customers", NUMBER, "42 customers"),
    ("共42个文件", NUMBER, "42个"),
    ("about 3.5 million dollars", NUMBER, "3.5 million dollars"),
    ("at 2026-03-03T10:20:30Z.", DATE, "2026-03-03T10:20:30Z"),
    ("on March 3rd 2026.", DATE, "March 3rd 2026"),
    ("by 3 March", DATE, "3 March"),
    ("am 3. März 2026", DATE, "3. März 2026"),
    ("am 12.03.2026, um", DATE, "12.03.2026"),
    ("le 14 juillet 2026", DATE, "14 juillet 2026"),
    ("在2026年3月4日开会", DATE, "2026年3月4日"),
    ("meet at 10:30 pm.", DATE, "10:30 pm"),
    ("first:\n$ git push origin main\nthen", COMMAND, "git push origin main"),
    ("run `npm install left-pad` first", COMMAND, "npm install left-pad"),
    ("Traceback\nValueError: bad value\n", ERROR, "ValueError: bad value"),
    ("Error: cannot open x", ERROR, "Error: cannot open x"),
    ("it died with exit code 137.", ERROR, "exit code 137"),
    ("HTTP/1.1 404 Not Found", ERROR, "HTTP/1.1 404 Not Found"),
    ("got 503 Service Unavailable", ERROR, "503 Service Unavailable"),
    ("connect ECONNREFUSED", ERROR, "ECONNREFUSED"),
    ("x\nbash: foo: command not found\n", ERROR, "bash: foo: command not found"),
    ("it is 12 000 € net", NUMBER, "12 000 €"),
    ("about 1 200 000 rubles", NUMBER, "1 200 000 rubles"),
    ("paid 1 234,56 €.", NUMBER, "1 234,56 €"),
    ("in 10-15 minutes", NUMBER, "10-15 minutes"),
    ("10 – 15 km", NUMBER, "10 – 15 km"),
    ("for 1.000.000 € gross", NUMBER, "1.000.000 €"),
    ("kostet 20 Euro", NUMBER, "20 Euro"),
    ("a fee of USD 500", NUMBER, "USD 500"),
    ("EUR 1200 each", NUMBER, "EUR 1200"),
    (r"see C:\Users\Max Mustermann\report.docx, please", PATH, r"C:\Users\Max Mustermann\report.docx"),
    ("open '/srv/a/My Docs/plan v2.pdf' now", PATH, "/srv/a/My Docs/plan v2.pdf"),
    (r"ls /srv/a/My\ Docs/plan.pdf", PATH, r"/srv/a/My\ Docs/plan.pdf"),
    ("clone git@github.com:a/b.git first", URL, "git@github.com:a/b.git"),
    ("at 2001:db8::ff00:42:8329.", IDENTIFIER, "2001:db8::ff00:42:8329"),
    ("listens on ::1 only", IDENTIFIER, "::1"),
    ("in 2026-W14 already", DATE, "2026-W14"),
    ("in KW 14 already", DATE, "KW 14"),
    ("call +49 171 2345678 today", IDENTIFIER, "+49 171 2345678"),
    ("call (555) 123-4567 today", IDENTIFIER, "(555) 123-4567"),
    ("call 0171 2345678 today", IDENTIFIER, "0171 2345678"),
    ("IBAN: DE89 3704 0044 0532 0130 00.", IDENTIFIER, "DE89 3704 0044 0532 0130 00"),
    ("see https://例え.jp/パス for it", URL, "https://例え.jp/パス"),
    ("so:\n```bash\nmake check\n# then\nnpm test -- --watch\n```\n", COMMAND, "make check"),
    ("so:\n```bash\nmake check\n# then\nnpm test -- --watch\n```\n", COMMAND, "npm test -- --watch"),
    ("$ docker run \\\n  -p 80:80 web\n", COMMAND, "docker run \\ -p 80:80 web"),
    ("to arn:aws:s3:::my_bucket/key now", IDENTIFIER, "arn:aws:s3:::my_bucket/key"),
    ("mac 00:1A:2B:3C:4D:5E is it", IDENTIFIER, "00:1A:2B:3C:4D:5E"),
)

PARTS = (
    ("it is 12 000 € net", "000 €"),
    ("1234 000 € or so", "000 €"),
    ("about 1 200 000 rubles", "000 rubles"),
    ("in 10-15 minutes", "15 minutes"),
    (r"see C:\Users\Max Mustermann\report.docx", r"C:\Users\Max"),
    ("open '/srv/a/My Docs/plan v2.pdf' now", "/srv/a/My"),
    ("open '/srv/a/My Docs/plan v2.pdf' now", "v2.pdf"),
    ("clone git@github.com:a/b.git first", "git@github.com"),
    ("for 1.000.000 € gross", "1.000.000"),
    ("at 2001:db8::ff00:42:8329 is it", "42:83"),
    ("mac 00:1A:2B:3C:4D:5E is it", "4D"),
    ("call +49 171 2345678 days", "2345678 days"),
    ("[#112 user] hi, [#110-#140] and [#89 assistant] users say", "11 user"),
    ("[#112 user] hi, [#110-#140] and [#89 assistant] users say", "89 assistant"),
    ("x [#112 users] y", "112 users"),
)

NOT_FOUND = (
    "and/or, he/she, km/h",
    "type /help",
    "</div> and <br/>",
    "as [#12] and [#12-#40] say",
    "UTF-8 and SHA-256",
    "e.g. this, i.e. that",
    "done.Next we go",
    "defaced and acceded",
    "PLEASE UPDATE",
    "aB3+" * 60,
    "12",
    "",
)

CHARACTERS, MANY_CHARACTERS = 8000, 25_000
HOSTILE = (
    "a",
    "A",
    "/",
    "/a",
    "a/",
    "1,",
    "http://",
    "a.",
    "a_",
    "a@",
    "order ",
    "Error",
    "Error: ",
    "`a",
    "$ \n",
    "1 ",
    "[",
    "aB3+",
)

texts = st.lists(
    st.one_of(st.sampled_from([text for text, _, _ in FOUND] + list(NOT_FOUND)), st.text(max_size=40)), max_size=12
).map(" ".join)


@pytest.mark.parametrize(("text", "kind", "fact"), FOUND)
def test_a_fact_is_found_word_for_word(text: str, kind: LedgerKind, fact: str) -> None:
    found = [(item.kind, item.text) for item in find_facts(text, with_names=True)]

    assert (kind, fact) in found


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_only_looks_like_a_fact_is_none(text: str) -> None:
    assert find_facts(text, with_names=True) == ()


@pytest.mark.parametrize(("text", "part"), PARTS)
def test_a_part_of_a_fact_is_none(text: str, part: str) -> None:
    assert part not in [fact.text for fact in find_facts(text, with_names=True)]


def test_our_own_tags_end_a_fact_and_are_none() -> None:
    found = find_facts("ERROR: x [#2]; /etc/passwd [#3], 5 [#4 users] and [#11 user] say", with_names=True)

    assert [fact.text for fact in found] == ["ERROR: x", "/etc/passwd"]


def test_symbols_and_counted_things_are_taken_from_users_only() -> None:
    text = "total_price and app.context.plan and `word` for 42 customers"

    assert find_facts(text, with_names=False) == ()
    assert len(find_facts(text, with_names=True)) == 4


def test_a_fact_inside_another_is_not_repeated() -> None:
    found = find_facts("ValueError: cannot read /etc/app/config.toml at 10:30", with_names=True)

    assert [fact.kind for fact in found] == [ERROR]


def test_a_long_fact_is_cut_visibly() -> None:
    (fact,) = find_facts("https://example.com/" + "a/" * 200, with_names=False)

    assert len(fact.text) == FACT_CHARACTERS
    assert fact.text.endswith("…")


@given(texts)
def test_facts_are_verbatim_short_in_order_and_the_same_each_time(text: str) -> None:
    found = find_facts(text, with_names=True)

    assert found == find_facts(text, with_names=True)
    assert all(before.start < after.start for before, after in pairwise(found))
    flat = " ".join(text.split())
    for fact in found:
        assert fact.text.removesuffix("…").rstrip() in flat
        assert len(fact.text) <= FACT_CHARACTERS
        assert fact.text == fact.text.strip()
        assert "\n" not in fact.text
    assert len({(fact.kind, fact.text) for fact in found}) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("characters", [CHARACTERS, pytest.param(MANY_CHARACTERS, marks=pytest.mark.proof)])
@pytest.mark.parametrize("unit", HOSTILE)
def test_searching_hostile_text_takes_time_in_proportion(unit: str, characters: int) -> None:
    def find(part: str) -> object:
        return find_facts(part, with_names=True)

    assert grows_linearly(find, lambda size: unit * (size // len(unit)), characters)
