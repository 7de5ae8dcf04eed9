# SPDX-License-Identifier: Apache-2.0
"""Random JSON schemas and regular expressions of the kinds that are supported."""
import json
import random
import string

NAMES = ["name", "age", "a", "b", "tags", "price", "id", "nested", "x y", "é", "q\"q", "back\\slash", "a/b", "list"]
WORDS = ["red", "green", "blue", "", "a b", "é\n", "😀", "\"", "\\", "null", "1"]


class Regexes:
    """`ecma`: without what other dialects read otherwise."""

    def __init__(self, rng, ecma):
        self.rng, self.ecma = rng, ecma

    def __call__(self, depth=2):
        self.named = False
        options = [self.concat(depth) for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
        text = "|".join(options)
        if len(options) > 1 and self.rng.random() < 0.7:
            text = f"({text})"
        if self.rng.random() < 0.3:
            text = "^" + text
        if self.rng.random() < 0.3:
            text += "$"
        return text

    def concat(self, depth):
        return "".join(self.repeated(depth) for _ in range(self.rng.randint(1, 4)))

    def repeated(self, depth):
        atom, is_group = self.atom(depth)
        # No unbounded repetition of a group: Python's engine tries all ways.
        counts = ["", "", "?", "{2}", "{0,3}", "{1,2}"] + ([] if is_group else ["*", "+", "{2,}", "+?"])
        return atom + self.rng.choice(counts)

    def atom(self, depth):
        kind = self.rng.randrange(10)
        if kind < 4:
            return self.rng.choice(["a", "b", "Z", "0", "7", " ", "-", "_", "/", "é", "😀", r"\.", r"\(", r"\\", r"\/", r"\n", r"\t",
                                    r"\u0041", r"\x42", "\"", ",", r"\{"]), False
        if kind < 6:
            return self.rng.choice([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "."]), False
        if kind < 8 or depth == 0:
            items = self.rng.sample(["a-f", "0-9", "XYZ", r"\d", r"\s", r"\w", r"\-", "é", r"\]", "_", r"\W", r"\D"],
                                    self.rng.randint(1, 3))
            return f"[{self.rng.choice(['', '', '^'])}{''.join(items)}]", False
        inner = "|".join(self.concat(depth - 1) for _ in range(self.rng.choice([1, 2])))
        start = self.rng.choice(["(", "(?:", "(?P<stop>"] if not self.named else ["(", "(?:"])
        self.named |= start == "(?P<stop>"
        return f"{start}{inner})", True


class Schemas:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.regex = Regexes(self.rng, ecma=True)

    def document(self):
        rng = self.rng
        schema = self.schema(3)
        if rng.random() < 0.3:
            name = rng.choice(["node", "Item", "a b"])
            ref = {"$ref": "#/$defs/" + name.replace(" ", "%20")}
            node = {"type": "object", "additionalProperties": False, "required": ["v"],
                    "properties": {"v": self.schema(1), "next": {"anyOf": [{"type": "null"}, ref]}}}
            schema = {"type": "object", "properties": {"head": ref, "rest": schema}, "required": ["head"],
                      "$defs": {name: node}}
        if rng.random() < 0.2:
            schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
            schema["title"] = "A title"
        return schema

    def schema(self, depth):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "format"]
        if depth > 0:
            kinds += ["object"] * 5 + ["array"] * 3 + ["tuple", "anyOf", "allOf", "oneOf", "types", "patternProperties",
                                                       "minProperties", "any"]
        return getattr(self, self.rng.choice(kinds).replace("const", "constant"))(depth - 1)

    def string(self, _):
        schema = {"type": "string"}
        if self.rng.random() < 0.4:
            schema["minLength"] = self.rng.randint(0, 4)
        if self.rng.random() < 0.4:
            schema["maxLength"] = schema.get("minLength", 0) + self.rng.randint(0, 6)
        return schema

    def pattern(self, _):
        schema = {"type": "string", "pattern": self.regex()}
        if self.rng.random() < 0.2:
            schema["maxLength"] = self.rng.randint(8, 30)
        return schema

    def format(self, _):
        return {"type": "string", "format": self.rng.choice(["date", "ipv4", "ipv6", "uuid", "email", "date-time", "time"])}

    def bounds(self, schema, number):
        low, high = sorted([number(), number()])
        if self.rng.random() < 0.5:
            schema[self.rng.choice(["minimum", "exclusiveMinimum"])] = low
        if self.rng.random() < 0.5:
            schema[self.rng.choice(["maximum", "exclusiveMaximum"])] = high
        return schema

    def integer(self, _):
        rng = self.rng
        schema = self.bounds({"type": "integer"}, lambda: rng.choice([0, 1, -1, rng.randint(-20, 20), rng.randint(-10**6, 10**6),
                                                                      rng.choice([9007199254740991, 10**9, -2**31])]))
        if rng.random() < 0.2:
            schema["multipleOf"] = rng.choice([1, 2, 3, 5, 7, 10, 100])
        return schema

    def number(self, _):
        rng = self.rng
        schema = self.bounds({"type": "number"}, lambda: rng.choice([0, 1, -1, 0.5, -0.25, 3.14159, 100, 1e-3, -1000.75,
                                                                     round(rng.uniform(-50, 50), rng.randint(0, 4))]))
        if rng.random() < 0.15:
            schema["multipleOf"] = rng.choice([0.5, 0.25, 0.01, 2, 10])
        return schema

    def boolean(self, _):
        return {"type": "boolean"}

    def null(self, _):
        return {"type": "null"}

    def value(self, depth=1):
        kinds = [None, True, False, 0, 1, -3, 12345, 0.5, 1e3, -2.25, *WORDS]
        if depth > 0:
            kinds += [[self.value(0), self.value(0)], {"k": self.value(0), "l m": self.value(0)}, [], {}]
        return self.rng.choice(kinds)

    def enum(self, _):
        return {"enum": [self.value() for _ in range(self.rng.randint(1, 5))]}

    def constant(self, _):
        return {"const": self.value()}

    def properties(self, depth, most=4):
        return {name: self.schema(depth) for name in self.rng.sample(NAMES, self.rng.randint(0, most))}

    def object(self, depth):
        rng = self.rng
        schema = {"type": "object", "properties": self.properties(depth)}
        names = list(schema["properties"])
        schema["required"] = rng.sample(names, rng.randint(0, len(names))) + (["other"] if rng.random() < 0.1 else [])
        if rng.random() < 0.6:
            schema["additionalProperties"] = rng.choice([False, False, True, self.schema(0)])
        if rng.random() < 0.3:
            del schema["type"]
        return schema

    def patternProperties(self, depth):
        schema = {"type": "object", "patternProperties": {self.rng.choice(["^x-", r"^\d+$", "^[a-c]"]): self.schema(depth)},
                  "additionalProperties": self.rng.choice([False, True])}
        if self.rng.random() < 0.5:
            schema["properties"] = self.properties(depth, 2)
        return schema

    def minProperties(self, depth):
        schema = {"type": "object", "properties": self.properties(depth, 2)}
        schema["required"] = list(schema["properties"])
        schema["minProperties"] = self.rng.randint(0, len(schema["required"]) + 1)
        if self.rng.random() < 0.5:
            schema["maxProperties"] = len(schema["required"]) + self.rng.randint(0, 3)
        return schema

    def array(self, depth):
        schema = {"type": "array", "items": self.schema(depth)}
        if self.rng.random() < 0.5:
            schema["minItems"] = self.rng.randint(0, 2)
        if self.rng.random() < 0.7:
            schema["maxItems"] = schema.get("minItems", 0) + self.rng.randint(0, 3)
        return schema

    def tuple(self, depth):
        schema = {"type": "array", "prefixItems": [self.schema(depth) for _ in range(self.rng.randint(1, 3))]}
        if self.rng.random() < 0.7:
            schema["items"] = self.rng.choice([False, self.schema(0)])
        if self.rng.random() < 0.5:
            schema["minItems"] = self.rng.randint(0, 3)
        return schema

    def anyOf(self, depth):
        return {"anyOf": [self.schema(depth) for _ in range(self.rng.randint(1, 3))]}

    def allOf(self, depth):
        return {"allOf": [self.schema(depth), self.rng.choice([self.schema(depth), {"type": "object"}, {}, True])]}

    def oneOf(self, depth):
        options = [{"type": "object", "properties": {"kind": {"const": kind}, "v": self.schema(depth)},
                    "required": ["kind"], "additionalProperties": False} for kind in ("circle", "square")]
        return {"oneOf": self.rng.choice([options, [{"type": "null"}, self.string(0)], [{"type": "integer"}, {"type": "array"}]])}

    def types(self, _):
        schema = {"type": self.rng.sample(["string", "null", "boolean", "integer", "array", "object"], 2)}
        if self.rng.random() < 0.5:
            schema |= {"maxLength": 3, "minimum": 5, "maxItems": 1}
        return schema

    def any(self, _):
        return self.rng.choice([{}, {"description": "anything"}])


def regexes(seed):
    rng = random.Random(seed)
    make = Regexes(rng, ecma=False)
    while True:
        yield make()


def lark(rng, schema):
    """A grammar with a schema inside, and what is before and behind it."""
    before = "".join(rng.choice(string.ascii_lowercase) for _ in range(3))
    return f'start: "{before}<" obj ">{before}"\nobj: %json {json.dumps(schema)}\n', f"{before}<", f">{before}"
