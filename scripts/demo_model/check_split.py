# SPDX-License-Identifier: Apache-2.0
"""Reads the whole text of all trainings and fails if it states a fact or has a call of the held-out questions.

Independent of the triples that the corpus keeps: every held-out fact is written
in every form that the corpus has for it and looked for among its sentences.
"""

import argparse
import itertools
import json
import pathlib
import re
import sys

import tools
from corpus import CURRICULA, training_chunk
from words import BY_KEY

CHUNKS = {1: 32, 2: 5, 3: 1}  # of each training in train.sh, whose seed is its number

def forms(name: str, key: str, value: str) -> set[str]:
    if key == tools.PLACE:
        return {tools.answer_text(name, value)}
    relation = BY_KEY[key]
    out = {form.format(n=name, v=value) for form in relation.statements}
    out.add(relation.sentence(name, value))
    out.add(relation.yes_no.format(n=name, v=value, b=relation.base.format(v=value)))
    return out


def sentences(text: str):
    """The sentences of a text; "Ann eats figs and has a cat." also gives "Ann has a cat."."""
    for sentence in re.split(r"(?<=[.?!])\s+", text):
        sentence = re.sub(r"^(Facts: |Remember this: |Yes, |No, )", "", sentence)
        yield sentence
        if " and " in sentence:
            first, second = sentence.split(" and ", 1)
            yield first + "."
            yield first.split(" ")[0] + " " + second


def main():
    here = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo-model"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=pathlib.Path, nargs="+",
                        default=[here / "heldout.jsonl", here / "heldout_tools.jsonl"])
    args = parser.parse_args()
    wanted, calls = set(), set()
    for line in itertools.chain(*(path.read_text(encoding="utf-8").splitlines() for path in args.questions)):
        row = json.loads(line)
        for triple in row["facts"]:
            wanted |= forms(*triple)
        if "call" in row:
            calls.add(json.dumps(row["call"], ensure_ascii=False))
    read = found = 0
    for training, chunk in [(t, chunk) for t in CHUNKS for chunk in range(CHUNKS[t])]:
        for document in training_chunk(training, chunk, CHUNKS[training], CURRICULA[training]):
            for text in [document.text] if document.text else [content for _, content in document.messages]:
                bad = [sentence for sentence in sentences(text) if sentence in wanted]
                bad += [line for line in text.split("\n") if line in calls]
                read += sum(1 for _ in sentences(text))
                found += len(bad)
                for what in bad:
                    print("held out, and in training:", what)
    print(json.dumps({"forms_of_held_out_facts": len(wanted), "held_out_calls": len(calls), "sentences_read": read, "found": found}))
    sys.exit(1 if found or not read else 0)


if __name__ == "__main__":
    main()
