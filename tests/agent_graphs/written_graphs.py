"""Graphs of other people: five after the documentation of LangGraph, LangChain and deepagents, and small ones."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, TodoListMiddleware
from langchain.agents.middleware.types import AgentMiddleware, AgentState
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt
from pydantic import BaseModel

Graph: TypeAlias = CompiledStateGraph[Any, Any, Any, Any]
RAN: list[str] = []
"""The cities that were looked up, in order."""


@tool
def look_up(city: str) -> str:
    """Return the weather in a city."""
    RAN.append(city)
    return f"It is sunny in {city}. " + "The wind is weak and comes from the west. " * 60


def react(model: BaseChatModel) -> Graph:
    """LangChain's quickstart: a model that calls tools until it answers (ReAct)."""
    return create_agent(model, [look_up], system_prompt="You tell the weather.")


class PlanState(MessagesState):
    plan: list[str]
    past_steps: Annotated[list[tuple[str, str]], operator.add]


class Plan(BaseModel):
    """The steps to follow, in order."""

    steps: list[str]


class Response(BaseModel):
    """Answer the user, or go on with further steps if the answer is empty."""

    answer: str
    steps: list[str] = []


def plan_and_execute(model: BaseChatModel) -> Graph:
    """LangGraph's tutorial "Plan-and-Execute": a planner, an agent for each step, and a node that plans again."""
    planner: Runnable[Any, Any] = model.with_structured_output(Plan)
    replanner: Runnable[Any, Any] = model.with_structured_output(Response)
    executor = create_agent(model, [look_up], system_prompt="You carry out one step of a plan.")

    async def plan_step(state: PlanState) -> dict[str, Any]:
        asked = [SystemMessage("Make a plan of few steps."), *state["messages"]]
        return {"plan": (await planner.ainvoke(asked)).steps}

    async def execute_step(state: PlanState) -> dict[str, Any]:
        step, *rest = state["plan"]
        done = await executor.ainvoke({"messages": [HumanMessage(f"Carry out this step: {step}")]})
        return {"past_steps": [(step, done["messages"][-1].text)], "plan": rest}

    async def replan_step(state: PlanState) -> Command[Literal["execute_step", "__end__"]]:
        told = "\n".join(f"{step}: {result}" for step, result in state["past_steps"][-2:])
        answer = await replanner.ainvoke([HumanMessage(f"Done so far:\n{told}\nLeft: {state['plan']}")])
        if answer.steps:
            return Command(goto="execute_step", update={"plan": answer.steps})
        return Command(goto="__end__", update={"messages": [AIMessage(answer.answer)]})

    graph = StateGraph(PlanState)
    graph.add_node("plan_step", plan_step)
    graph.add_node("execute_step", execute_step)
    graph.add_node("replan_step", replan_step)
    graph.add_edge(START, "plan_step")
    graph.add_edge("plan_step", "execute_step")
    graph.add_edge("execute_step", "replan_step")
    return graph.compile()


def _handoff(name: str) -> BaseTool:
    @tool(f"transfer_to_{name}", description=f"Hand over to {name}.")
    def hand_over(
        state: Annotated[MessagesState, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[Any]:
        told = ToolMessage(f"Transferred to {name}.", name=f"transfer_to_{name}", tool_call_id=tool_call_id)
        return Command(goto=name, update={"messages": [*state["messages"], told]}, graph=Command.PARENT)

    return hand_over


def supervisor(model: BaseChatModel) -> Graph:
    """LangGraph's tutorial "Multi-agent supervisor": an agent that hands over to two others, which are sub-graphs."""
    weather = create_agent(model, [look_up], system_prompt="You know the weather.", name="weather_agent")
    poet = create_agent(model, [], system_prompt="You write short poems.", name="poet_agent")
    tools = [_handoff("weather_agent"), _handoff("poet_agent")]
    leader = create_agent(model, tools, system_prompt="You hand over to agents.", name="supervisor")
    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", leader, destinations=("weather_agent", "poet_agent", END))
    graph.add_node("weather_agent", weather)
    graph.add_node("poet_agent", poet)
    graph.add_edge(START, "supervisor")
    graph.add_edge("weather_agent", "supervisor")
    graph.add_edge("poet_agent", "supervisor")
    return graph.compile()


class Reflecting(MessagesState):
    rounds: int


def reflection(model: BaseChatModel) -> Graph:
    """LangGraph's tutorial "Reflection": a writer, and a critic who reads the drafts with the roles exchanged."""

    async def generate(state: Reflecting) -> dict[str, Any]:
        asked = [SystemMessage("You write essays."), *state["messages"]]
        return {"messages": [await model.ainvoke(asked)], "rounds": state.get("rounds", 0) + 1}

    async def reflect(state: Reflecting) -> dict[str, Any]:
        swap = {"ai": HumanMessage, "human": AIMessage}
        said = [swap[one.type](content=one.content) for one in state["messages"][1:] if one.type in swap]
        asked = [SystemMessage("You criticise essays."), state["messages"][0], *said]
        return {"messages": [HumanMessage((await model.ainvoke(asked)).text)]}

    def after_draft(state: Reflecting) -> str:
        return END if state["rounds"] % 2 == 0 else "reflect"

    graph = StateGraph(Reflecting)
    graph.add_node("generate", generate)
    graph.add_node("reflect", reflect)
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", after_draft, ["reflect", END])
    graph.add_edge("reflect", "generate")
    return graph.compile()


def _merged(left: dict[str, str] | None, right: dict[str, str]) -> dict[str, str]:
    return {**(left or {}), **right}


class FilesState(AgentState):
    files: Annotated[dict[str, str], _merged]


class FilesMiddleware(AgentMiddleware):
    state_schema = FilesState


@tool
def write_file(path: str, text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Write a file."""
    told = ToolMessage(f"Wrote {path}.", tool_call_id=tool_call_id)
    return Command(update={"files": {path: text}, "messages": [told]})


@tool
def read_file(path: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Read a file."""
    return str(state["files"].get(path, "There is no such file."))


def deep_agent(model: BaseChatModel) -> Graph:
    """An agent as deepagents makes it: to-do list, files in the state, and a sub-agent behind the tool `task`."""
    researcher = create_agent(model, [look_up], system_prompt="You research one thing.")

    @tool
    async def task(description: str) -> str:
        """Give a task to a sub-agent."""
        done = await researcher.ainvoke({"messages": [HumanMessage(description)]})
        return str(done["messages"][-1].text)

    middleware: list[AgentMiddleware[Any, Any, Any]] = [TodoListMiddleware(), FilesMiddleware()]
    return create_agent(model, [write_file, read_file, task], system_prompt="You work long.", middleware=middleware)


def approved(model: BaseChatModel) -> Graph:
    """An agent whose calls a person approves."""
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"look_up": True})]
    return create_agent(model, [look_up], middleware=middleware)


class Asked(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[Any], operator.add]


def asking(model: BaseChatModel) -> Graph:
    """A graph that asks a person in a node of its own, writes to its custom stream, and keeps notes."""

    async def ask(state: Asked) -> dict[str, Any]:  # noqa: ARG001  # LangGraph gives it by this name
        answer = interrupt({"question": "Which city?", "options": ["Kiel", "Bonn"]})
        return {"notes": [answer]}

    async def answer(state: Asked) -> dict[str, Any]:
        get_stream_writer()({"cities": state["notes"]})
        return {"messages": [await model.ainvoke([HumanMessage(f"Tell of {state['notes']}.")])]}

    graph = StateGraph(Asked)
    graph.add_node("ask", ask)
    graph.add_node("answer", answer)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "answer")
    graph.add_edge("answer", END)
    return graph.compile()


def with_tools(model: BaseChatModel, tools: list[BaseTool]) -> Graph:
    """An agent with the tools of the agent file."""
    return create_agent(model, tools)


def _one_node(node: Callable[[Any], dict[str, Any]], state: type = MessagesState) -> Graph:
    made: Runnable[Any, Any] = RunnableLambda(node)
    return StateGraph(state).add_node("node", made).add_edge(START, "node").compile()


def echo_node(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"You wrote: {state['messages'][-1].text}")]}


echo = _one_node(echo_node)


def sync_model(model: BaseChatModel) -> Graph:
    """A node that is no coroutine and calls the model in its thread."""
    return _one_node(lambda state: {"messages": [model.invoke(state["messages"])]})


def failing() -> Graph:
    def fail(_: MessagesState) -> dict[str, Any]:
        raise KeyError("secret")

    return _one_node(fail)


class Unstorable(MessagesState):
    thing: object


def unstorable() -> Graph:
    return _one_node(lambda _: {"thing": object(), "messages": [AIMessage("x")]}, Unstorable)


def silent() -> Graph:
    return _one_node(lambda _: {})


def parallel(model: BaseChatModel) -> Graph:
    """Two nodes that call the model at the same time, and one that joins what they say."""

    async def first(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([*state["messages"], HumanMessage("first")])]}

    async def second(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([*state["messages"], HumanMessage("second")])]}

    async def joined(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(" and ".join(sorted(one.text for one in state["messages"][-2:])))]}

    graph = StateGraph(MessagesState)
    for node in (first, second, joined):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "first")
    graph.add_edge(START, "second")
    graph.add_edge(["first", "second"], "joined")
    return graph.compile()


def uncompiled() -> StateGraph[Any, Any, Any, Any]:
    return StateGraph(MessagesState).add_node("node", echo_node).add_edge(START, "node")


class NoMessages(TypedDict):
    text: str


def without_messages() -> Graph:
    return _one_node(lambda _: {"text": "x"}, NoMessages)


def with_breakpoint() -> Graph:
    return uncompiled().compile(interrupt_before=["node"])


def wants_more(model: BaseChatModel, retriever: object) -> Graph:  # noqa: ARG001  # nobody gives it
    return react(model)


def broken() -> Graph:
    raise ValueError("no such index")


number = 7
