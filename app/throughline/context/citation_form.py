"""The form of citations such as `[#12]` and `[#12-#40]`, as regular expressions.

Readers of citations take the exact form. The check of summaries also takes what models write instead of it, such as
`[#12; 15 - 20]`.
"""

import re

POSITION_DIGITS = 9
"""Most digits of a position in any session."""

_NUMBER = rf"[0-9]{{1,{POSITION_DIGITS}}}(?![0-9])"
_DASH = "[–—-]"
_BEGINS = r"(?<![\w`-]\[#)(?=[0-9])"
_ENDS = r"\](?![(`\w])"
"""What may not stand around the brackets: links, code and parts of words are no citations."""

BRACKET = re.compile(rf"\[#{_BEGINS}[^\[\]`\n]{{1,200}}+{_ENDS}")
"""A pair of square brackets that begins with a position, such as `[#12]` or `[#12, user]`."""

PLACE = re.compile(
    rf"#(?P<first>{_NUMBER})(?:[ ]?{_DASH}[ ]?#?(?P<last>{_NUMBER}))?"
    r"(?: in session (?P<session>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})(?![\w-]))?"
)
"""One position or span of positions in brackets, with its session if that is another one."""

NEXT = re.compile(r"[ ]?[,;][ ]?(?=#)|[ ](?=#)")
"""Separator of two positions in the same brackets: a comma, a semicolon or a space before `#`."""

LOOSE_BRACKET = re.compile(rf"(?P<before>[^\S\n]?+)\[(?P<places>#{_BEGINS}[\s,;#–—0-9-]++){_ENDS}")
"""Brackets that begin with `[#` and a digit and hold only digits and separators, with the white space before them."""

LOOSE_PLACE = re.compile(rf"#?([0-9]++)(?:\s*+{_DASH}\s*+#?([0-9]++))?+")
"""One number or span of numbers in brackets that LOOSE_BRACKET finds, however many digits the numbers have."""

MARKED_NUMBER = re.compile(rf"#({_NUMBER})")
"""A number after `#`, anywhere in a text."""
