#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one source that holds several test sources, so that their headers are parsed once.

unite_tests.py OUT SOURCE...

Each source's anonymous namespace becomes a named one of its own, since helpers of two sources may have one name;
lines keep their file and number in messages.
"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
out = pathlib.Path(sys.argv[1])
parts = []
for path in map(pathlib.Path, sys.argv[2:]):
    source = str(path.relative_to(root))  # the same in every checkout, so that ccache shares what it compiles
    name = "source_" + re.sub(r"\W", "_", source.removeprefix("tests/").removesuffix(".cc"))
    text = path.read_text()
    parts.append(f'#line 1 "{source}"\n' + re.sub(r"^namespace \{$", f"namespace {name} {{", text, flags=re.M))
out.write_text("\n".join(parts))
