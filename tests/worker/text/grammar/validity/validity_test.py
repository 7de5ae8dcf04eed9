#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random answers that obey random schemas, regular expressions and grammars, checked by jsonschema and re.

    validity_test.py ANSWER_GRAMMARS MODEL_DIR NUMBER [SEED]
"""
import collections
import decimal
import json
import random
import re
import subprocess
import sys
import unicodedata
import warnings

import jsonschema

import sources

ANSWERS = 4


def multiple_of(_, factor, instance, __):
    if is_number(_, instance) and decimal.Decimal(instance) % decimal.Decimal(factor) != 0:
        yield jsonschema.ValidationError(f"{instance} is not a multiple of {factor}")


def is_number(_, value):
    return isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool)


def is_integer(_, value):
    if not is_number(_, value):
        return False
    return isinstance(value, int) or value.as_tuple().exponent >= 0 or value == value.to_integral_value()


def number_of(text):
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # its exponent is too large for Python
        mantissa, exponent = text.lower().split("e")
        return decimal.Decimal(mantissa + ("e-999999" if exponent.startswith("-") else "e999999"))


def parse(text):
    """Numbers keep all their digits."""
    return json.loads(text, parse_float=number_of, parse_constant=lambda name: 1 / 0)


def validator_of(schema):
    base = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    base.check_schema(schema)
    types = base.TYPE_CHECKER.redefine_many({"number": is_number, "integer": is_integer})
    cls = jsonschema.validators.extend(base, {"multipleOf": multiple_of}, type_checker=types)
    return cls(parse(json.dumps(schema)), format_checker=jsonschema.FormatChecker(["ipv4", "ipv6", "uuid", "email"]))


class Answerer:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8")

    def __call__(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main():
    program, model, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    decimal.getcontext().prec = 1000
    warnings.simplefilter("ignore")
    answer = Answerer(program, model)
    rng = random.Random(seed)
    schemas, regexes = sources.Schemas(seed), sources.regexes(seed)
    counts, refusals = collections.Counter(), collections.Counter()

    def check(kind, source, result, is_valid):
        for text in result.get("answers", []):
            counts[f"{kind}: answers"] += 1
            why = is_valid(text)
            # Characters newer than Python's Unicode are none to it.
            if why and not any(unicodedata.category(c) == "Cn" for c in text):
                raise SystemExit(f"{kind} {source}\nanswer {text!r}\n{why}")
        counts[f"{kind}: unfinished"] += result.get("unfinished", 0)
        counts[f"{kind}: sources"] += 1
        if "error" in result or "failure" in result:
            counts[f"{kind}: refused"] += 1
            refusals[re.sub(r"at \S+|\d+|`.*`", "…", result.get("error") or "FAILURE " + result["failure"])[:110]] += 1

    for index in range(number):
        schema = schemas.document()
        validator = validator_of(schema)

        def is_valid_json(text):
            try:
                return "; ".join(error.message for error in validator.iter_errors(parse(text)))
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        if index % 5 == 4:
            source, before, behind = sources.lark(rng, schema)
            result = answer(kind="lark", text=source, seed=index, answers=ANSWERS)
            check("lark", source, result, lambda text: "no frame" if not (text.startswith(before) and text.endswith(behind))
                  else is_valid_json(text[len(before):len(text) - len(behind)]))
        else:
            source = json.dumps(schema)
            check("json_schema", source, answer(kind="json_schema", text=source, seed=index, answers=ANSWERS), is_valid_json)
        regex = next(regexes)
        pattern = re.compile(regex)
        check("regex", regex, answer(kind="regex", text=regex, seed=index, answers=ANSWERS),
              lambda text: None if pattern.fullmatch(text) else "no match")
    result = answer(kind="json_object", seed=seed, answers=20 * ANSWERS)
    check("json_object", "", result, lambda text: None if isinstance(parse(text), dict) else "no object")

    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    for text, count in refusals.most_common(25):
        print(f"{count:6} {text}")
    for kind in ("json_schema", "regex", "lark"):
        assert counts[f"{kind}: refused"] * 3 < counts[f"{kind}: sources"], f"too many of kind {kind} are refused"
        assert counts[f"{kind}: unfinished"] < counts[f"{kind}: answers"], f"too few answers of kind {kind} finish"


main()
