"""`make reference`: write the reference pages and `.env.example` anew, and print which files changed."""

import sys

from scripts.reference.made_files import ROOT, made_files


def main() -> None:
    """Write each made file whose text has changed, and print its name."""
    for path, text in made_files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
