"""`/model` in a chat: which model answers, which may be chosen, and for how long a choice holds."""

import json

import pytest

from fakes.command_stage import CommandStage
from fakes.scripted_turns import said
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.domain.prompt import OverrideField

OPEN = AgentDefinition(
    name="assistant",
    model="openai:gpt-4o",
    base_url="http://127.0.0.1:1/v1",
    overrides=frozenset({OverrideField.MODEL}),
    override_models=(OtherModel("openai:big", "http://127.0.0.1:1/v1"), OtherModel("offline")),
)
OTHER = AgentDefinition(name="other", description="allows nothing")
CHOSEN = "openai:big answers from the next message on, until the agent or the session changes."


@pytest.fixture(autouse=True)
def agents(service: CommandStage) -> None:
    """Have the service's agents be these."""
    registry = service.api.services.agents
    registry.replace_all([OPEN, OTHER])


def sent(service: CommandStage) -> list[object]:
    """Return the overrides of each message that was sent, None for none."""
    bodies = [
        json.loads(bytes(body))
        for request, body in zip(service.way.asked, service.way.bodies, strict=True)
        if request.method == "POST" and request.url.path.endswith("/messages")
    ]
    return [body.get("overrides") for body in bodies]


async def test_a_chosen_model_answers_the_further_messages_of_the_chat(service: CommandStage) -> None:
    service.api.turns.scripts = [said(text) for text in ("one", "two", "three", "four")]

    result = await service.run("chat", typed="hi\n/model openai:big\nand now?\nand then?\n/model default\nagain\n")

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "one",
        CHOSEN,
        "two",
        "three",
        "The agent's own model (openai:gpt-4o) answers from the next message on.",
        "four",
    ]
    assert sent(service) == [None, {"model": "openai:big"}, {"model": "openai:big"}, None]


async def test_without_a_name_it_tells_the_model_in_use_and_the_allowed_ones(service: CommandStage) -> None:
    result = await service.run("chat", typed="/model\n/model openai:big\n/model\n")

    allowed = "You may choose: openai:big, offline, or default."
    assert result.stdout.splitlines() == [
        f"The agent's own model (openai:gpt-4o) answers. {allowed}",
        CHOSEN,
        f"openai:big answers. {allowed}",
    ]


async def test_a_model_that_is_not_allowed_is_refused_with_those_that_are(service: CommandStage) -> None:
    result = await service.run("chat", typed="/model gpt-9\n")

    assert result.exit_code == 1
    assert "The agent assistant has no model 'gpt-9' to choose. You may choose: openai:big, offline." in result.stderr


@pytest.mark.parametrize(("typed", "exit_code"), [("/model\n", 0), ("/model openai:big\n", 1)])
async def test_an_agent_that_allows_none_says_how_to_allow_some(
    service: CommandStage, typed: str, exit_code: int
) -> None:
    result = await service.run("chat", "other", typed=typed)

    assert result.exit_code == exit_code
    assert "The agent other allows no other model: its file would name them in `override_models`" in " ".join(
        result.output.split()
    )


@pytest.mark.parametrize("leaving", ["/agent other\n", "/new\n"])
async def test_a_choice_ends_with_the_agent_or_the_session(service: CommandStage, leaving: str) -> None:
    await service.run("chat", typed=f"/model openai:big\nhi\n{leaving}and now?\n")

    assert sent(service) == [{"model": "openai:big"}, None]


async def test_a_resumed_session_begins_with_the_agents_own_model(service: CommandStage) -> None:
    talk = await service.talk(2)

    await service.run("chat", typed=f"/model openai:big\nhi\n/resume {talk.session.id}\nand now?\n")

    assert sent(service) == [{"model": "openai:big"}, None]
