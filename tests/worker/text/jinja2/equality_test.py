#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders generated templates by Jinja2 and by this project, and compares the texts.

    equality_test.py RENDERER NUMBER [SEED]

Equal are two equal texts and two errors. Where only ours is an error, a row of refusals.md must name it.
"""
import collections
import json
import pathlib
import signal
import subprocess
import sys
import threading
import warnings

import expressions
import reference

HERE = pathlib.Path(__file__).resolve().parent
MAX_CPU_S = 2  # the CPU time that Jinja2 may take for a template; more counts as an error


def refusals():
    """Returns what the first column of the table names; … stands for any text."""
    rows = [line.split("|")[1].strip() for line in (HERE / "refusals.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("| ") and not line.startswith(("| ---", "| what"))]
    return [row.split("…") for row in rows]


def names(row, error):
    at = 0
    for part in row:
        at = error.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def too_long(*_):
    raise TimeoutError(f"more than {MAX_CPU_S} s")


class Reference:
    def __init__(self):
        self.environment = reference.environment()
        self.variables = json.dumps(expressions.VARIABLES)

    def render(self, template):
        """(text, None) or (None, error). The variables are new ones each time: the filter indent changes lists."""
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)  # a large power takes Python hours
        try:
            text = self.environment.from_string(template).render(
                messages=[], tools=None, documents=None, add_generation_prompt=True, **json.loads(self.variables))
            text.encode()
            return text, None
        except Exception as error:  # whatever Python raises
            return None, f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def main():
    renderer, number = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGVTALRM, too_long)
    generator = expressions.templates(seed)
    templates = [next(generator) for _ in range(number)]
    process = subprocess.Popen([renderer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def write():
        print(json.dumps(expressions.VARIABLES), file=process.stdin)
        for template in templates:
            print(json.dumps(template), file=process.stdin)
        process.stdin.close()

    threading.Thread(target=write, daemon=True).start()
    wanted, rows = Reference(), refusals()
    counts, used, faults = collections.Counter(), collections.Counter(), []
    for template in templates:
        line = process.stdout.readline()
        if not line:
            sys.exit(f"the renderer ended at {template!r}")
        ours = json.loads(line)
        text, error = wanted.render(template)
        if "text" in ours and error is None and ours["text"] == text:
            counts["equal texts"] += 1
        elif "error" in ours and error is not None:
            counts["both refuse"] += 1
        elif "error" in ours and (row := next((r for r in rows if names(r, ours["error"])), None)) is not None:
            counts["refused, on the list"] += 1
            used["…".join(row)] += 1
        else:
            counts["different"] += 1
            faults.append((template, text if error is None else error, ours))
    if process.wait() != 0:
        sys.exit(f"the renderer ended with {process.returncode}")
    print(f"seed {seed}:", ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    for row, count in used.most_common():
        print(f"  {count:6} {row}")
    for template, theirs, ours in faults[:20]:
        print(f"{template!r}\n  Jinja2: {theirs[:300]!r}\n  ours:   {str(ours)[:300]}")
    if faults or counts["equal texts"] < number // 5:
        sys.exit(f"{len(faults)} of {number} templates differ")


main()
