# SPDX-License-Identifier: Apache-2.0
"""The blocks of docs/snippets.md. Each stands behind a comment that names it: <!-- snippet: NAME -->."""
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[4] / "docs/snippets.md"
NAME = re.compile(r"<!-- snippet: ([a-z0-9-]+) -->")


def blocks(text):
    """The blocks of a page by their names; ValueError for a block without a name, a name without a block, a name that
    stands twice and a block that does not end."""
    found, name, lines = {}, None, None
    for number, line in enumerate(text.splitlines(), 1):
        if lines is not None:
            if line == "```":
                found[name] = "\n".join(lines) + "\n"
                name = lines = None
            else:
                lines.append(line)
        elif line.startswith("```"):
            if name is None:
                raise ValueError(f"line {number}: a block without a name")
            lines = []
        elif name is not None:
            raise ValueError(f"line {number}: snippet {name} has no block")
        elif line.lstrip().startswith("<!-- snippet"):
            match = NAME.fullmatch(line)
            if not match or match[1] in found:
                raise ValueError(f"line {number}: {line} names no block, or another one too")
            name = match[1]
    if name is not None:
        raise ValueError(f"the end: snippet {name} has no end")
    return found


def placed(name, places):
    """The block of that name with the real address, or port, for each that is written. All of them have to be there,
    and no other address of this machine."""
    text = blocks(PAGE.read_text(encoding="utf-8"))[name]
    for written, real in places.items():
        if written not in text:
            raise ValueError(f"snippet {name} has no {written}")
        text = text.replace(written, real)
    if "localhost" in text:
        raise ValueError(f"snippet {name} has an address that was not replaced:\n{text}")
    return text
