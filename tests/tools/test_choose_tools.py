"""Names of the tools of servers, and what is told of tools that are left out."""

from throughline.domain.tool_server import ServedTools, ToolServer
from throughline.tools.mcp_client.choose_tools import ListedTool, ToolList, choose_tools

FILES, MAIL = ToolServer("files", ("files",)), ToolServer("mail", ("mail",))


def tool_list(*names: str) -> ToolList:
    return ToolList(tuple(ListedTool(name, f"Do {name}.", {"type": "object"}) for name in names))


def names(served: ServedTools) -> list[str]:
    return [tool.spec.name for tool in served.tools]


def test_a_tool_whose_name_imitates_that_of_another_is_left_out_and_told() -> None:
    hashed = names(choose_tools([(FILES, tool_list("a.b", "a_b"))]))[0]
    imitating = hashed.removeprefix("files__")

    served = choose_tools([(FILES, tool_list("a.b", "a_b", imitating)), (MAIL, tool_list("send"))])

    assert names(served) == [hashed, names(served)[1], "mail__send"]
    assert served.problems == {"files": f"the tool {imitating!r} is left out: another tool has the name {hashed}"}


def test_a_tool_with_the_name_of_an_own_one_is_left_out_and_told() -> None:
    served = choose_tools([(FILES, tool_list("read", "write")), (MAIL, tool_list("send"))])

    left = served.without({"files__read", "other"})

    assert names(left) == ["files__write", "mail__send"]
    assert left.problems == {"files": "the tool 'read' is left out: another tool has the name files__read"}


def test_it_is_told_after_the_other_problems_of_the_server() -> None:
    served = ServedTools(choose_tools([(FILES, tool_list("read"))]).tools, {"files": "it has no tool 'x'"})

    told = served.without({"files__read"}).problems["files"]

    assert told == "it has no tool 'x'; the tool 'read' is left out: another tool has the name files__read"


def test_nothing_is_told_if_no_name_is_taken() -> None:
    assert choose_tools([(FILES, tool_list("read"))]).without({"send"}).problems == {}
