from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.wire_shapes import NOW, version_out
from throughline.cli.chat_context import draw_changes, draw_version, draw_versions, request_of, versions_named
from throughline.cli.printable import moment
from throughline.domain.errors import InvalidInput
from throughline.wire.sessions import SummaryVersionOut

COUNTS = st.integers(0, 10**9)
WIDTHS = st.integers(20, 200)

PREPARED = version_out(9, version=None, state="prepared", token_count=700, through_position=40)
VERSIONS = (
    PREPARED,
    version_out(2, stretches=3, token_count=1_500, through_position=25),
    version_out(1, state="superseded", token_count=400, through_position=9, model=""),
    version_out(0, state="superseded", stretches=0, token_count=0, model=""),
)


def test_versions_are_listed_with_number_state_reach_size_and_time() -> None:
    assert draw_versions(VERSIONS, width=80).plain.split("\n") == [
        f"–    prepared   #1-#40       700 tokens {moment(NOW)}  by m",
        f"v2   adopted    #1-#25     1,500 tokens {moment(NOW)}  by m in 3 segments",
        f"v1   superseded #1-#9        400 tokens {moment(NOW)}",
        f"v0   superseded nothing        0 tokens {moment(NOW)}",
    ]
    assert draw_versions((), width=80).plain == "No summary yet."


def test_the_model_of_a_version_is_whole_at_eighty_columns() -> None:
    version = version_out(12, stretches=13, token_count=11_500, through_position=1_250, model="openai:gpt-4o-mini")

    assert " by openai:gpt-4o-mini" in draw_versions((version,), width=80).plain


def test_a_version_that_says_the_same_as_an_earlier_one_is_told() -> None:
    again = version_out(3, through_position=9, text="first")
    versions = (
        again,
        version_out(2, state="superseded", text="second"),
        version_out(1, state="superseded", through_position=9, text="first"),
    )

    lines = draw_versions(versions, width=100).plain.split("\n")

    assert [line.endswith("same as v1") for line in lines] == [True, False, False]


def test_a_version_is_shown_with_its_whole_text() -> None:
    drawn = draw_version(version_out(2, text="[#1-#20]\n- Ada moved.\x1b[31m\n\n- It rained."), width=80).plain.split(
        "\n"
    )

    assert drawn[0].startswith("v2   adopted    #1-#20")
    assert drawn[1:3] == ["", "[#1-#20]"]
    assert "- It rained." in drawn
    assert "\x1b" not in "".join(drawn)


def test_what_changed_between_two_versions_is_told_line_by_line() -> None:
    old = version_out(
        1, token_count=30, through_position=9, text="- Ada moved.\n- a\n- b\n- c\n- d\n- It costs 38 euros."
    )
    new = version_out(
        2,
        token_count=40,
        through_position=20,
        text="- Ada moved.\n- a\n- b\n- c\n- d\n- It costs 41 euros.\n- Bob came.",
    )

    assert draw_changes(old, new, width=80).plain.split("\n") == [
        "version 1 (#1-#9) → version 2 (#1-#20): 30 → 40 tokens",
        "  - d",
        "- - It costs 38 euros.",
        "+ - It costs 41 euros.",
        "+ - Bob came.",
    ]
    assert draw_changes(old, old, width=80).plain.endswith("Both versions have the same text.")


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("", ()),
        ("2", ("2",)),
        ("v2 3", ("2", "3")),
        ("00000000-0000-0000-0000-000000000002", ("00000000-0000-0000-0000-000000000002",)),
    ],
)
def test_versions_are_named_by_number_or_id(argument: str, names: tuple[str, ...]) -> None:
    assert versions_named(argument) == names


@pytest.mark.parametrize("argument", ["second", "v", "1 2 3", "1 x", "²"])
def test_what_names_no_version_is_told(argument: str) -> None:
    with pytest.raises(InvalidInput, match="Give "):
        versions_named(argument)


@given(
    st.lists(
        st.builds(
            version_out,
            COUNTS,
            state=st.text(max_size=30),
            stretches=COUNTS,
            token_count=COUNTS,
            through_position=COUNTS,
            model=st.text(max_size=99),
            created_at=st.datetimes(timezones=st.just(UTC)),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
    WIDTHS,
)
def test_no_line_of_the_versions_is_wider_than_the_screen(versions: tuple[SummaryVersionOut, ...], width: int) -> None:
    assert max(cell_len(line) for line in draw_versions(versions, width=width).plain.split("\n")) <= width


@pytest.mark.parametrize("typed", ["from", "from -1", "from 0x", "from #", "from 99999999999 keep dates", "From +3"])
def test_a_place_that_is_none_is_no_wish(typed: str) -> None:
    with pytest.raises(InvalidInput, match="number of a message"):
        request_of(typed)


def test_a_wish_may_begin_with_from() -> None:
    assert request_of("from now on keep all dates") == {"instructions": "from now on keep all dates"}
    assert request_of("from #12 keep dates") == {"instructions": "keep dates", "from_position": 12}
