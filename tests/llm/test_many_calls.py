import pytest
from langchain_core.messages import AIMessageChunk, ToolCallChunk

from fakes.growth import FACTOR, grows_linearly
from throughline.llm.assemble_answer import MOST_CALLS, AnswerAssembly


@pytest.mark.slow
def test_a_piece_finds_its_call_as_fast_among_many() -> None:
    def pieces_of(count: int) -> list[AIMessageChunk]:
        pieces = (ToolCallChunk(name=None, args="x", id=None, index=number % count) for number in range(count * 10))
        return [AIMessageChunk(content="", tool_call_chunks=[piece]) for piece in pieces]

    def assemble(chunks: list[AIMessageChunk]) -> None:
        assembly = AnswerAssembly(adds_usage=False, max_call_characters=MOST_CALLS * 10)
        for chunk in chunks:
            list(assembly.add(chunk))

    assert grows_linearly(assemble, pieces_of, MOST_CALLS // FACTOR)
