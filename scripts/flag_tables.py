#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of flags in docs/operations.md from the --help of the programs in $CONTINUO_BIN
(default build/release/bin).

    scripts/flag_tables.py            writes them
    scripts/flag_tables.py --check    exit code 1 where they would change
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/operations.md"
BIN = pathlib.Path(os.environ.get("CONTINUO_BIN", ROOT / "build/release/bin"))
PROGRAMS = ("continuo-gateway", "continuo-worker")
# Defaults that depend on the machine.
OF_THE_MACHINE = {"threads"}


def flags(text):
    """(name, value, help, default) of each flag, as --help lists them."""
    found = []
    for line in text.splitlines():
        match = re.match(r"  --(\w+)(\S*)\s*(.*)$", line)
        if match:
            found.append([match[1], match[2], match[3]])
        elif found and re.match(r" {10,}\S", line):
            found[-1][2] = (found[-1][2] + " " + line.strip()).strip()
        elif found and not line.strip():
            break
    for name, value, said in found:
        default = re.search(r"(?: |^)\[([^\]]*)\]$", said)
        if default:
            said = said[:default.start()].strip()
        shown = default[1] if default and name not in OF_THE_MACHINE else ""
        yield name, value.strip("[").removesuffix("]").removeprefix("="), said, shown


def table(program):
    text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    lines = ["| flag | value | default | |", "| --- | --- | --- | --- |"]
    for name, value, said, default in flags(text):
        if name in ("help", "version"):
            continue
        choices = ", ".join(f"`{v}`" for v in value.split("|")) if "|" in value else value.lower()
        shown = f"`{default}`" if default else ""
        lines.append(f"| `--{name}` | {choices} | {shown} | {said.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def main():
    old = text = PAGE.read_text(encoding="utf-8")
    for name in PROGRAMS:
        begin, end = f"<!-- flags:{name}:begin -->\n", f"<!-- flags:{name}:end -->"
        before, rest = text.split(begin)
        after = rest.split(end)[1]
        text = before + begin + table(BIN / name) + end + after
    if text == old:
        return
    if "--check" in sys.argv:
        sys.exit("docs/operations.md: the tables of flags are out of date; run scripts/flag_tables.py")
    PAGE.write_text(text, encoding="utf-8")


main()
