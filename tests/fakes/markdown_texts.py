"""Random Markdown in which much is unfinished, nested or out of place."""

from hypothesis import strategies as st

_PIECES = st.sampled_from(
    ["word ", "\n", "\n\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |", "```\n", "```python\n", "code `x` ", "- item ",
     "![pic](http://x.io/p.png) ", "[label](https://x.io) ", "<!channel> ", "**bold** ", "# Head", "漢字 ", "@here ",
     "````\n", "~~~\n", "   ```\n", "> ```\n", "> ", "1. ```sh\n", "1. ", "```x = 1```", "`", "``", "\\", "\t",
     "handlers[name](event)\n", "        ", "&lt;", "|", "~~~sh\n```\n", "](javascript:", "@"]
)  # fmt: skip
TEXTS = st.lists(_PIECES, max_size=40).map("".join)
