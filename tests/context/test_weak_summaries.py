"""What small models write in place of a summary: refused, or cleaned of what surrounds it."""

import pytest

from context.strategies import Said, by_length, stored
from throughline.context.summaries.check_summary import NotWorthIt, SummaryRejected, check_summary
from throughline.context.summaries.clean_summary import TIMES_IN_A_LIST
from throughline.context.summaries.summary_prompt import (
    MERGE_TASK,
    SUMMARISER_SYSTEM_PROMPT,
    TextRequest,
    render_transcript,
    segment_request,
)
from throughline.domain.message import Role

TURNS = (
    ("My dog is called Rex and he is seven years old.", "Rex is a lovely name. How is he with children?"),
    ("He is gentle. We move to Lisbon on 14 May, by the way.", "Moving with a dog takes planning; book early."),
    ("My sister Clara drives the van, a blue Ford Transit.", "Good to know that Clara drives the van."),
    ("The budget for everything is 4,200 euros.", "Then the movers should cost at most 1,500 euros."),
    ("I am allergic to penicillin, keep that in mind.", "Noted: you are allergic to penicillin."),
    ("The new flat is at Rua das Flores 21, third floor.", "A third floor without a lift may cost extra."),
    ("The server of my shop runs at 10.0.3.17, port 8443.", "I remember 10.0.3.17 with port 8443."),
    ("Which insurance do we need for the piano?", "A transport insurance that names the piano."),
    ("Please answer briefly from now on.", "I will."),
    ("The landlord is called Senhor Almeida.", "Senhor Almeida, the landlord."),
    ("We decided to sell the wardrobe before we leave.", "Sell it two weeks before the move."),
    ("The vet wants a rabies certificate from us.", "It must be older than 21 days."),
)
"""A conversation of plain facts in small talk."""

SAID = [Said(role, text) for turn in TURNS for role, text in zip((Role.USER, Role.ASSISTANT), turn, strict=True)]
MESSAGES = stored(SAID, by_length)
RECORD = render_transcript(MESSAGES)
ASKED = TextRequest(segment_request(MESSAGES, 600), 600, 5000, (1, len(MESSAGES)))
GOOD = "The user moves to Lisbon on 14 May with the dog Rex [#1-#4]. The budget is 4,200 euros [#7]."

BAD = {
    "one word": "Fine.",
    "one word with a citation": "Fine [#1-#24].",
    "nothing said": "The user and the assistant talked about various topics.",
    "a compliment": "What a great conversation! Everything went well and they both had a nice time together.",
    "praise in general": "The conversation provides information about several topics and the assistant is helpful.",
    "half a sentence": "The user wants to",
    "half a heading": "## Inte",
    "preface alone": "Sure! Here is a summary of your conversation:",
    "preface and nothing": "Sure! Here is a summary of your conversation: they talked. Would you like anything else?",
    "offers help": "Of course! I'd be happy to help you with that. What would you like to know?",
    "waits": "I am ready to write the summary. Please provide the conversation record.",
    "greets": "Hello! How can I help you today?",
    "thanks": "Thank you for sharing this. Let me know if you have any questions.",
    "apology": "I apologize for the confusion, but I don't have enough information to write it.",
    "apology of a machine": "As an AI language model, I do not have access to your previous conversations.",
    "loop of a word": "user " * 120,
    "loop of two words": "and then " * 90,
    "loop of a sentence": "The assistant is here to help the user. " * 40,
    "loop with a number": " ".join(f"The user is happy. The user is happy with it {at % 3}." for at in range(60)),
    "loop of the task": "Write the summary now, in at most 300 words. " * 30,
    "task copied": SUMMARISER_SYSTEM_PROMPT[120:900],
    "form copied": "\n".join(SUMMARISER_SYSTEM_PROMPT.splitlines()[7:18]),
    "task in other order": f"{MERGE_TASK} Return only the summary. Write in the language of the conversation.",
    "empty headings": "## Intent\n\n## State\n\n## Decisions\n\n## Open items\n\n## How to recall more",
    "headings of nothing": "## Intent\nNone\n## State\nN/A\n## Decisions\n- None\n## Open items\n- Nothing",
    "form to fill in": "## Intent\n[user's intent]\n## State\n[current state]\n## Decisions\n[list of decisions]",
    "marks copied": "<#23 user (local)> Which insurance\n<#24 assistant> A transport\n<#25 user> Please answer",
    "lines copied": "\n".join(RECORD.splitlines()[:6]),
    "tags copied": f"<conversation_record>\n{RECORD[:200]}\n</conversation_record>",
    "tags alone": "</conversation_record>\n</existing_summary>\n<existing_summary>",
    "dialogue": "User: What is my dog called?\nAssistant: Your dog is called Rex!\nUser: Thank you.",
    "dialogue after a greeting": "Assistant: Hello! How can I help you?\nUser: I need help with my computer.",
    "dialogue of a template": "<|im_start|>assistant\nSure, I can help you with that.<|im_end|>",
    "instruction format": "[INST] Write a summary of the conversation [/INST] Sure, here it is.",
    "role play": "I am Captain Blackbeard, and this ship sails at dawn! Hoist the flag, my hearties, for gold awaits"
    " beyond the horizon where monsters sleep beneath stormy waves.",
    "a poem": "Roses bloom in morning dew,\nSkies above are painted blue,\nGentle winds through meadows sing,\n"
    "Golden hope that seasons bring,\nRivers dance toward the sea,\nHearts forever wild, forever free.",
    "a story": "Once upon a time there was a little girl named Lily who loved to play outside in the sunshine. One"
    " morning she found a big red ball under a tree and ran home to show her mommy.",
    "another subject": "Photosynthesis converts sunlight into chemical energy inside chloroplasts, where chlorophyll"
    " absorbs light and splits molecules, releasing oxygen while producing glucose for plants.",
    "a lesson": "To improve your writing, follow these steps: choose strong verbs, avoid adverbs, vary sentence length,"
    " revise drafts carefully, and read aloud before publishing anything online.",
    "a program": "```python\ndef fibonacci(n):\n    if n <= 1:\n        return n\n    return fibonacci(n - 1)"
    " + fibonacci(n - 2)\n\nfor value in range(ten):\n    print(fibonacci(value), sep=separator, flush=always)\n```",
    "a tool call": '{"name": "search_history", "arguments": {"query": "dog Rex"}}',
    "a tool call in tags": '<tool_call>\n{"name": "read_history", "arguments": {"first": 1}}\n</tool_call>',
    "a message in JSON": '{"role": "assistant", "content": "How can I help you?"}',
    "empty JSON": '{"summary": ""}',
    "an error": '{"error": {"message": "Rate limit reached", "type": "tokens"}}',
    "reasoning alone": "<think>The user talks about the dog Rex and Lisbon, so I should write",
    "German": "Der Nutzer zieht mit dem Hund Rex nach Lissabon und hat ein Budget von 4200 Euro. Die Schwester Clara"
    " fährt den Wagen, und der Vermieter ist Senhor Almeida. Das Klavier wird mit einer Versicherung für den Transport"
    " verschickt, und der Schrank wird nicht mitgenommen, sondern auf dem Markt verkauft.",
    "Chinese": "用户将于五月十四日带着狗搬到里斯本，预算为四千二百欧元，妹妹克拉拉开车，用户对青霉素过敏。",
    "Russian": "Пользователь переезжает в Лиссабон с собакой, бюджет четыре тысячи двести евро, сестра ведёт фургон.",
    "dots": "...........\n..........\n.....",
    "symbols": "|||| ---- |||| ---- ||||",
}
"""Texts as models of some hundred million to a few thousand million parameters write them."""

CLEANED = {
    "preface": (f"Sure! Here is a summary of your conversation: {GOOD}", GOOD),
    "preface on a line": (f"Certainly! Here's a concise summary of the conversation:\n\n{GOOD}", GOOD),
    "preface in German": (f"Gerne! Hier ist eine Zusammenfassung des Gesprächs:\n{GOOD}", GOOD),
    "preface in Spanish": (f"¡Claro! Aquí tienes un resumen de la conversación:\n{GOOD}", GOOD),
    "preface in Chinese": (f"好的，以下是对话的总结：\n{GOOD}", GOOD),
    "question at the end": (f"{GOOD} Would you like anything else?", GOOD),
    "offer at the end": (f"{GOOD}\n\nLet me know if you need anything else! I hope this helps.", GOOD),
    "note at the end": (f"{GOOD}\n\n(Note: this summary is based on the record.)", GOOD),
    "dialogue at the end": (f"{GOOD}\nUser: And my sister?\nAssistant: Your sister is Clara.", GOOD),
    "token of a template": (f"{GOOD}<|im_end|>\n<|im_start|>user\nWhat is my dog called?", GOOD),
    "loop at the end": (f"{GOOD}\n" + "The user is very happy. " * 30, f"{GOOD}\nThe user is very happy."),
    "loop of two sentences": (
        f"{GOOD}\n" + "The user is very happy. The assistant is happy, too. " * 30,
        f"{GOOD}\nThe user is very happy. The assistant is happy, too.",
    ),
    "loop of an item": (f"{GOOD}\n" + "- The user is very happy.\n" * 30, f"{GOOD}\n- The user is very happy."),
    "loop with numbers": (
        f"{GOOD}\n" + "".join(f"{at}. The user is very happy.\n" for at in range(30)),
        f"{GOOD}\n0. The user is very happy.\n1.",
    ),
    "loop between words": (
        f"{GOOD}\nThe user is happy. Yes. The user is happy. Sure. The user is happy. Fine. The user is happy. Rex.",
        f"{GOOD}\nThe user is happy. Yes. Sure. Fine. Rex.",
    ),
    "loop of very many items": (
        "".join(f"- Piano {at}\nClara moves it, not done.\n" for at in range(TIMES_IN_A_LIST + 1)),
        "- Piano 0\nClara moves it, not done.\n" + "\n".join(f"- Piano {at + 1}" for at in range(TIMES_IN_A_LIST)),
    ),
    "end of a text": (f"<s> {GOOD}</s>", GOOD),
    "end of a line": (f"{GOOD}</s>\nWhat is my dog called?", GOOD),
    "end before a turn": (f"{GOOD}</s><s>[INST] What is my dog called? [/INST]", GOOD),
    "task before it": (f"{SUMMARISER_SYSTEM_PROMPT.splitlines()[-1]}\n{GOOD}\n{GOOD}", f"{GOOD}\n{GOOD}"),
    "a tag in it": (GOOD.replace("[#7]", "[#7 user]"), GOOD),
}

GOOD_TEXTS = (
    GOOD,
    "## Intent\nMove to Lisbon on 14 May.\n## State\nRex, 7 years; Clara drives.\n## Open items\nWould a lift help?",
    "- Dog: Rex\n- Sister: Clara\n- Budget: 4,200 euros\n- Allergy: penicillin",
    "Lisbon, 14 May, Rex, Clara, penicillin, 10.0.3.17:8443.",
    "You move to Lisbon with Rex; your sister Clara drives. Your budget is 4,200 euros.",
    "User: moves to Lisbon on 14 May with the dog Rex.\nAssistant: advised a transport insurance for the piano.",
    '{"intent": "move to Lisbon on 14 May", "facts": ["dog Rex", "sister Clara", "budget 4,200 euros"]}',
    "This is a conversation about a move to Lisbon. Rex is the dog, Clara the sister who drives.",
    "I have noted the move to Lisbon, the dog Rex, the vet's certificate and the penicillin allergy.",
    "Okay to sell the wardrobe. The landlord is Senhor Almeida, the flat Rua das Flores 21.",
    "The user asks for brief answers and names the allergy to penicillin.",
    "Here is the plan: sell the wardrobe, insure the piano, drive with Clara on 14 May.",
    "The user moves to <s>Porto</s> Lisbon with the dog Rex.",
    "- <s>sell the wardrobe</s>\n- insure the piano\n- <s>rabies certificate for Rex</s>",
    "<s>Sell the wardrobe</s> is done, the piano insurance is open.",
    "\n".join(f"- [ ] {task}\n  Clara does it, not started." for task in ("piano", "wardrobe", "certificate", "van")),
    "1. Piano\n   Owner is Clara.\n2. Wardrobe\n   Owner is Clara.\n3. Van\n   Owner is Clara.",
    " ".join(
        f"The {task} is open. Clara does it, not started." for task in ("piano", "wardrobe", "certificate", "van")
    ),
)


def kept_of(text: str) -> str | None:
    """What is stored of the text, None if it is refused."""
    try:
        return check_summary(text, ASKED, by_length)[0]
    except (NotWorthIt, SummaryRejected):
        return None


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_summary_of_the_conversation_is_refused(kind: str) -> None:
    assert kept_of(BAD[kind]) is None


@pytest.mark.parametrize("kind", CLEANED)
def test_a_good_summary_is_freed_of_what_stands_around_it(kind: str) -> None:
    text, expected = CLEANED[kind]
    assert kept_of(text) == expected


@pytest.mark.parametrize("text", GOOD_TEXTS)
def test_a_good_summary_is_kept_as_it_is(text: str) -> None:
    assert kept_of(text) == text
