"""Citations in delivered answers: links to the messages of the channel, as far as those are known."""

from dataclasses import replace
from functools import partial

from fakes.slack_delivery import DeliveryStage, PlayedTurn
from fakes.slack_double import say
from throughline.domain.message import NewMessage, Role, Source

CHANNEL, THREAD = "D0ANNA001", "1700000001.000001"
WRITES = ("chat.startStream", "chat.appendStream")
LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
QUESTION = f"https://double.slack.com/archives/{CHANNEL}/p1700000001000001"


async def ask(outgoing: DeliveryStage, text: str, ts: str) -> PlayedTurn:
    """Ask in the thread; the question is stored as its turn would store it."""
    turn = await outgoing.ask(said=say(text, ts=ts, channel=CHANNEL, thread_ts=THREAD if ts != THREAD else ""))
    message = NewMessage(Role.USER, text, Source.SLACK)
    await outgoing.database.messages.append_message(turn.claimed.lease, "user", message)
    return turn


async def answered_once(outgoing: DeliveryStage) -> str:
    """Have a first question answered; return the address of the answer."""
    turn = await ask(outgoing, "the harbour", THREAD)
    await turn.finish("It is red.")
    await outgoing.deliver()
    ts = outgoing.posted[0].ts.replace(".", "")
    return f"https://double.slack.com/archives/{CHANNEL}/p{ts}?thread_ts={THREAD}&cid={CHANNEL}"


def has_written(outgoing: DeliveryStage, before: int, times: int) -> bool:
    """Whether more than so many calls have written text, behind the first calls."""
    return sum(map(outgoing.methods()[before:].count, WRITES)) > times


async def test_valid_citations_of_known_messages_are_links(outgoing: DeliveryStage) -> None:
    first_answer = await answered_once(outgoing)
    turn = await ask(outgoing, "again", "1700000002.000001")

    await turn.finish(
        'You said "the harbour" [#1] and "the sea" [#1], I said [#2]; see [#1-#2], [#9], [#1, #2], `[#1]`, [#4].\n'
        "| a | [#1] |\n|---|---|\n"
    )
    await outgoing.deliver()

    assert outgoing.texts()[1].split("\n")[0] == (
        f'You said "the harbour" [#1]({QUESTION}) and "the sea" [#1], I said [#2]({first_answer}); '
        f"see [#1-#2]({QUESTION}), [#9], [#1, #2], `[#1]`, [#4]."
    )
    assert "https" not in outgoing.texts()[1].partition("\n")[2]


async def test_an_answer_with_links_grows_without_being_written_again(outgoing: DeliveryStage) -> None:
    first_answer = await answered_once(outgoing)
    turn, written = await ask(outgoing, "again", "1700000002.000001"), len(outgoing.methods())
    pieces = [f"{LINE}You said [#", f"1].\n{LINE}", f"I said [#2].\n\n{LINE}A ` tick [#1].\n"]
    pieces += ["Another ` tick.\n\nSee [#1", "] and [#9]."]
    sender = await outgoing.start()
    for number, piece in enumerate(pieces):
        await turn.say(piece)
        if number < 3:
            await outgoing.in_time(partial(has_written, outgoing, written, number))
    await turn.finish("".join(pieces))
    await sender

    assert outgoing.texts()[1] == (
        f"{LINE}You said [#1]({QUESTION}).\n{LINE}I said [#2]({first_answer}).\n\n{LINE}"
        f"A ` tick [#1].\nAnother ` tick.\n\nSee [#1]({QUESTION}) and [#9]."
    )
    assert "chat.update" not in outgoing.methods()
    assert outgoing.methods().count("chat.startStream") == 1


async def test_a_message_that_is_not_in_the_channel_is_no_link(outgoing: DeliveryStage) -> None:
    await answered_once(outgoing)
    await outgoing.rows("update slack_deliveries set channel_id = 'D0ELSEWHERE'")
    turn = await ask(outgoing, "again", "1700000002.000001")
    await turn.finish("See [#1] and [#3].")

    await outgoing.deliver()

    asked_again = f"https://double.slack.com/archives/{CHANNEL}/p1700000002000001?thread_ts={THREAD}&cid={CHANNEL}"
    assert outgoing.texts()[1] == f"See [#1] and [#3]({asked_again})."


async def test_without_the_address_of_the_workspace_there_are_no_links(outgoing: DeliveryStage) -> None:
    outgoing.services = replace(outgoing.services, identity=replace(outgoing.services.identity, url=""))
    turn = await ask(outgoing, "the harbour", THREAD)
    await turn.finish("See [#1].")

    await outgoing.deliver()

    assert outgoing.texts() == ["See [#1]."]
