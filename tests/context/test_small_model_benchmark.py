"""The benchmark with a small language model: what is said, what is recorded, and which texts count as faulty."""

from dataclasses import replace

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.small_model import TURNS, Outcome, Proxy, Sent, conversation, faults_of, read_facts, report, run_proxy
from throughline.context.summaries.render_summary import CUT_MARK
from throughline.context.summaries.summary_prompt import SUMMARISER_SYSTEM_PROMPT

SAID = "My dog is called Biscuit. The bus was late today."


@pytest.mark.parametrize("casual", [False, True])
def test_each_fact_is_said_once_and_nothing_else_names_it(*, casual: bool) -> None:
    facts, talk = read_facts(casual=casual)
    said = conversation(facts, talk, TURNS)

    assert len(said) == TURNS == len(set(said))
    for fact in facts:
        assert [line for line in said if fact.stands_in(line)] == [fact.said]
        assert not any(fact.stands_in(other.asked) for other in facts)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("The user has a dog named Biscuit [#1].", []),
        ("Sure! The dog is called Biscuit.", ["a preface"]),
        ("- [#1 user] The dog is called Biscuit.", ["a record's tag"]),
        ("The bus was late.\n**##2 user (admin):** The dog is called Biscuit.", ["a record's tag"]),
        ("The dog is called Biscuit.<|im_end|>", ["a template's token"]),
        ("The dog is called Biscuit, he snores a lot. Would you like more of it?", ["words to the reader"]),
        ("The dog is Biscuit.\n" * 3, ["a loop"]),
        ("Write these sections, each only if there is something to say:\nBiscuit.", ["its own task"]),
        ("I'm glad you like Biscuit.", ["a preface", "a talk, no report"]),
        ("Biscuit, my dog, is called by you.", ["a talk, no report"]),
        ("- user: My dog is called Biscuit. [#1]", []),
        ("Dog:\n\nDog:\n\nDog:", ["a loop"]),
        (f"The dog is Biscuit.{CUT_MARK}\nLate bus.{CUT_MARK}", ["two cuts"]),
        (" ", []),
        ("They discussed quarterly figures.", ["hardly a word of the user"]),
    ],
)
def test_a_text_is_faulty_if_it_holds_what_no_summary_should(text: str, faults: list[str]) -> None:
    assert faults_of(text, SAID) == faults


def test_a_text_needs_two_words_of_a_user_who_said_much() -> None:
    said = " ".join(read_facts()[1])

    assert faults_of("The user made pancakes.", "I made pancakes.") == []
    assert faults_of("They drank wine and ate pancakes.", said) == ["hardly a word of the user"]
    assert faults_of("They made pancakes and soup.", said) == []
    assert faults_of("- assistant: Wine goes with that. [#2]", said) == []


@pytest.mark.parametrize("refuses_summaries", [False, True])
async def test_the_proxy_records_each_request_with_the_models_own_count(*, refuses_summaries: bool) -> None:
    async def complete(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"usage": {"prompt_tokens": len(asked["messages"])}})

    app, statuses = web.Application(), []
    app.router.add_post("/v1/chat/completions", complete)
    async with TestServer(app) as server:
        proxy = Proxy(str(server.make_url("/")), refuses_summaries)
        async with run_proxy(proxy) as url, httpx.AsyncClient() as client:
            for system in ("You are a helpful assistant.", SUMMARISER_SYSTEM_PROMPT):
                messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hi!"}]
                answer = await client.post(f"{url}/chat/completions", json={"messages": messages, "max_tokens": 2_047})
                statuses.append(answer.status_code)

    assert statuses == [200, 503 if refuses_summaries else 200]
    recorded = [(sent.is_summary, sent.prompt_tokens, sent.is_over) for sent in proxy.sent]
    assert recorded == [(False, 2, True), (True, 0, False) if refuses_summaries else (True, 2, True)]


def test_the_aims_are_missed_by_a_lost_fact_a_large_prompt_or_a_faulty_text() -> None:
    facts, _ = read_facts()
    held = " ".join(fact.said for fact in facts)
    sent = Sent("You are a helpful assistant.", (held,), 48, 200, 2_000)
    good = Outcome(last=held, asked=[(held, "")] * len(facts), sent=[sent], adopted=[("#1-#8", held, [])])

    assert report(good, facts, "small")[1]
    for worse in (
        replace(good, last=facts[0].said),
        replace(good, asked=[("", fact.word) for fact in facts]),
        replace(good, sent=[replace(sent, prompt_tokens=2_001)]),
        replace(good, sent=[replace(sent, status=400)]),
        replace(good, failed=1),
        replace(good, adopted=[("#1-#8", held, ["a loop"])]),
    ):
        assert not report(worse, facts, "small")[1]
