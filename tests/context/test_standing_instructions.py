"""Which of a user's sentences hold from now on, and which are said once."""

import pytest

from app.context.summaries.standing_instructions import is_standing_instruction
from fakes.growth import FACTOR, grows_linearly

LASTING = (
    "Always use type hints in Python code.",
    "never ever use rm -rf",
    "From now on, answer in German.",
    "ok great, and from now on always run the linter before committing",
    "Please don’t use emojis.",
    "DO NOT ever delete files without asking me!",
    "I prefer short answers.",
    "I want you to always explain your reasoning.",
    "Whenever I ask for a summary, give me bullet points.",
    "In future, please call me Max.",
    "My name is Anna.",
    "Keep it short.",
    "Remember that I'm vegetarian.",
    "**Only** use the metric system.",
    "Could you please always reply in French?",
    "Can you keep your answers shorter from now on?",
    "Unless I say otherwise, assume Python 3.12.",
    "If a test fails, show me the full traceback.",
    "Don't use var.",
    "House rule: no third-party dependencies.",
    "My timezone is CET; please use it for all times.",
    "Antworte immer auf Deutsch.",
    "Nenn mich Max.",
    "Bitte verwende keine Emojis.",
    "Kannst du bitte ab sofort auf Englisch antworten?",
    "Alle Preise immer in Euro angeben.",
    "Réponds toujours en français.",
    "N’utilise jamais d’emojis.",
    "À partir de maintenant, tutoie-moi.",
    "Responde siempre en español.",
    "No borres archivos sin preguntarme.",
    "De ahora en adelante escribe las fechas en formato ISO.",
    "Non usare mai emoji.",
    "D'ora in poi chiamami Max.",
    "Não apague arquivos sem me perguntar.",
    "Toda vez que eu pedir um resumo, use tópicos.",
    "Всегда отвечай на русском.",
    "Меня зовут Анна.",
    "Не удаляй файлы без моего разрешения.",
    "请始终用中文回答。",
    "不要使用表情符号。",
    "没有我的同意不要修改文件。",
    "今後は英語で返信してください。",
    "絵文字は使わないでください。",
    "私のことは田中さんと呼んでください。",
    "請始終用繁體中文回答。",
    "請不要使用表情符號。",
    "從現在開始，回覆要簡短。",
    "沒有我的同意不要修改檔案。",
    "Use 4 spaces for indentation.",
    "Stop apologizing.",
    "Commits should always be signed.",
)

REVOKED = (
    "You no longer have to answer in German.",
    "You may use emojis again.",
    "You can use emojis again.",
    "Forget what I said about emojis.",
    "Forget the rule about emojis.",
    "Ignore my earlier instruction about tabs.",
    "Please disregard my previous instructions.",
    "Cancel that rule.",
    "That rule no longer applies.",
    "You don't need to sign your answers anymore.",
    "Du musst nicht mehr auf Deutsch antworten.",
    "Du darfst wieder Emojis verwenden.",
    "Vergiss, was ich über Emojis gesagt habe.",
    "Die Regel gilt nicht mehr.",
    "Tu n'es plus obligé de répondre en français.",
    "Oublie ce que j'ai dit sur les emojis.",
    "Ya no tienes que responder en español.",
    "Olvida lo que dije sobre los emojis.",
    "Non devi più rispondere in italiano.",
    "Não precisa mais responder em português.",
    "Больше не нужно отвечать на русском.",
    "你不用再用中文回答了。",
    "取消这条规则。",
    "もう英語で答えなくていいです。",
    "さっきの指示は忘れてください。",
)

SAID_ONCE = (
    "Please fix this test.",
    "can you always-on VPN?",
    "She always says that.",
    "Do you always answer in English?",
    "The tests always fail on Mondays.",
    "I never said you should always use tabs.",
    "My boss told me to always use tabs.",
    "You don't have to always answer in German.",
    "I want you to fix the login bug.",
    "Never mind.",
    "Always nice to talk to you",
    "Always fails with exit code 1.",
    "Call me back tomorrow.",
    "Don't run the tests yet.",
    "Don't worry about it.",
    "Write an essay in German about cats.",
    "Answer this question in German.",
    "Whenever I run the tests, it crashes.",
    "In the future we might move to Kubernetes.",
    "From now on the cluster has three nodes.",
    "Remember when we fixed that bug?",
    "Use the staging database for this migration.",
    "Create a function that always returns True.",
    "Only two tests fail.",
    "How do I make sure that the tests always pass?",
    "The docs say to never call this function twice.",
    "He said: always lock the door.",
    "Sie sagt immer dasselbe.",
    "Immer dieses Problem.",
    "Mach dir keine Sorgen.",
    "In Zukunft wird alles besser.",
    "Ne t'inquiète pas.",
    "Je n'ai jamais vu cette erreur.",
    "Nunca he visto este error.",
    "¿Por qué siempre respondes en inglés?",
    "Non ho mai visto questo errore.",
    "Ela sempre diz isso.",
    "Она всегда так говорит.",
    "Переведи этот текст на английский.",
    "她总是这么说。",
    "以后再说。",
    "请用Python写一个排序函数。",
    "彼女はいつもそう言います。",
    "なぜいつも英語で答えるのですか？",
    "Am 3. Mai fliegen wir nach Rom.",
    "Termin: Mai 2026",
    "Rendez-vous: mai 2026",
    "Le 3 mai, on part.",
    "Use 5 eggs.",
    "Stop smoking.",
    "Patients should never take this drug.",
    "Well all you have to do is touch the screen and it opens.",
    "You need to sign some stuff at the desk.",
    "My brother must not eat nuts.",
    "Mein Bruder darf keine Nüsse essen.",
    "Forget it.",
    "I forgot what I said.",
    "Cancel my order.",
    "Ignore the warning in line 3.",
    "You can try again.",
    "",
    "   ",
    "?",
)

HOSTILE = ("a" * 100_000, "please " * 20_000, "always " * 20_000, ", " * 50_000, "don't " * 20_000, "总是" * 50_000)


@pytest.mark.parametrize("sentence", LASTING)
def test_an_order_that_lasts_is_recognised(sentence: str) -> None:
    assert is_standing_instruction(sentence)


@pytest.mark.parametrize("sentence", REVOKED)
def test_what_takes_an_order_back_is_recognised(sentence: str) -> None:
    assert is_standing_instruction(sentence)


@pytest.mark.parametrize("sentence", SAID_ONCE)
def test_a_request_for_once_a_report_and_a_question_are_not(sentence: str) -> None:
    assert not is_standing_instruction(sentence)


@pytest.mark.parametrize("text", HOSTILE)
def test_judging_a_hostile_sentence_takes_time_in_proportion(text: str) -> None:
    assert grows_linearly(is_standing_instruction, lambda size: text[:size], len(text) // FACTOR)
