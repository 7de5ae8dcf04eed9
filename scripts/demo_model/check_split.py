# SPDX-License-Identifier: Apache-2.0
"""Reads the whole training text and fails if one states a fact of the held-out questions.

Independent of the triples that the corpus keeps: every held-out fact is written
in every form that the corpus has for it and looked for among its sentences.
"""

import argparse
import json
import pathlib
import re
import sys

from corpus import training_chunk
from words import BY_KEY


def forms(name: str, key: str, value: str) -> set[str]:
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
    parser.add_argument("--questions", type=pathlib.Path, default=here / "heldout.jsonl")
    parser.add_argument("--seed", type=int, default=1, help="of the training")
    parser.add_argument("--chunks", type=int, default=32, help="of the training")
    args = parser.parse_args()
    wanted = set()
    for line in args.questions.read_text(encoding="utf-8").splitlines():
        for triple in json.loads(line)["facts"]:
            wanted |= forms(*triple)
    read = found = 0
    for chunk in range(args.chunks):
        for document in training_chunk(args.seed, chunk, args.chunks):
            for text in [document.text] if document.text else [content for _, content in document.messages]:
                for sentence in sentences(text):
                    read += 1
                    if sentence in wanted:
                        found += 1
                        print("held-out fact in training:", sentence)
    print(json.dumps({"forms_of_held_out_facts": len(wanted), "sentences_read": read, "found": found}))
    sys.exit(1 if found or not read else 0)


if __name__ == "__main__":
    main()
