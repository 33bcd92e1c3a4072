"""Writes the tables of docs/settings.md from the options: `python docs/tables.py`; `--check` only compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shardwise.base.options import ACTIVE, NO_EFFECT, ONE_VALUE, Option

PAGE = Path(__file__).with_name("settings.md")
BEGIN, END = "<!-- made by docs/tables.py -->\n", "<!-- end of what docs/tables.py made -->\n"


def _row(option: Option) -> str:
    also = "".join(f" (also `{name}`)" for name in option.aliases)
    return f"| `{option.name}`{also} | `{option.default!r}` | {option.meaning} |"


def _table(ours: bool) -> list[str]:
    head = ["| option | default | what it does |", "|---|---|---|"]
    return head + [_row(option) for option in ACTIVE if option.name.startswith("shardwise_") is ours]


def tables() -> str:
    """The part of the page that is made from the options."""
    kept = ", ".join(f"`{name}`" for name in sorted(NO_EFFECT))
    fixed = ", ".join(f"`{name}`" for name in sorted(ONE_VALUE))
    lines = [
        "## Options of shardwise", "", *_table(ours=True), "",
        "## Options of JAX", "", *_table(ours=False), "",
        "## Options of JAX without effect", "", f"They are accepted and kept, as nothing here depends on them: {kept}.", "",
        "## Options of JAX with one value", "",
        f"Another value than the default is refused, as it would change results or errors: {fixed}.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def page_with_tables(text: str) -> str:
    """The page with its made part as it should be."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where the page is not up to date"
    )
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    wanted = page_with_tables(text)
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")
    return int(check and text != wanted)


if __name__ == "__main__":
    sys.exit(main())
