"""The reference pages and `.env.example` are made from the code: `make reference` brings them up to date."""

import pytest

from house.tree import ROOT, name_of
from scripts.reference.made_files import made_files
from scripts.reference.made_parts import replace_parts

PAGE = "# Page\n\n<!-- made by `make reference`: one -->\nold\n<!-- end -->\n\nby hand\n"


def test_what_is_made_from_the_code_is_up_to_date() -> None:
    made = made_files()

    assert {ROOT / "docs" / "reference" / "errors.md"} <= made.keys()
    assert [name_of(path) for path, text in made.items() if path.read_text(encoding="utf-8") != text] == []


def test_only_the_text_between_the_comments_is_replaced() -> None:
    made = replace_parts(PAGE, {"one": "new \\1"})

    assert made == PAGE.replace("\nold\n", "\n\nnew \\1\n\n")
    assert replace_parts(made, {"one": "new \\1"}) == made


@pytest.mark.parametrize("parts", [{}, {"one": "", "two": ""}, {"two": ""}])
def test_a_page_without_the_parts_made_for_it_is_refused(parts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="the page has the parts"):
        replace_parts(PAGE, parts)
