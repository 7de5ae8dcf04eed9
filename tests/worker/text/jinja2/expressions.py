# SPDX-License-Identifier: Apache-2.0
"""Templates of one expression or a few statements over every filter, test, method, global, operator and statement
that Jinja2 has, with values of each type.

`VARIABLES` are what a template is given, as JSON. `templates(seed)` yields templates without end.
"""
import itertools
import random

VARIABLES = {
    "undef_in": {"a": 1},
    "none": None, "yes": True, "no": False,
    "zero": 0, "one": 1, "two": 2, "three": 3, "seven": 7, "minus": -5, "big": 123456789012, "n300": 300,
    "half": 2.5, "pi": 3.14159, "small": 0.00001234, "huge": 1.5e300, "whole": 4.0, "negf": -7.25, "e16": 1e16,
    "empty": "", "a": "a", "word": "hello", "title": "Hello World", "text": "  the quick\tbrown fox\n jumps ",
    "lines": "one\ntwo\n\nthree\r\nfour", "digits": "42", "floats": "3.75", "hexs": "0x1F", "html": "<b>a & 'b'</b> \"c\"",
    "uni": "Ünïcödé ßtraße 語 😀", "percent": "%s is %d", "braces": "{0} and {1!r:>5}", "csv": "a,b,,c", "upper": "SHOUT",
    "path": "a/b/c.txt", "key": "name", "dashes": "--x-y--", "neg": "-12", "sci": "1e3", "under": "1_000", "quote": "it's",
    "elist": [], "ints": [3, 1, 2, 3], "words": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.5, True],
    "nested": [[1, 2], [3, [4, 5]], []], "floats_l": [1.5, -0.5, 2.0], "pairs": [["a", 1], ["b", 2]],
    "edict": {}, "d": {"name": "x", "b": 2, "items": 3, "none": None, "0": "zero"},
    "nd": {"x": {"y": {"z": [1, {"w": "deep"}]}}, "list": [1, 2]},
    "rows": [{"n": "b", "v": 2, "t": {"u": 1}}, {"n": "A", "v": 1}, {"n": "b", "v": 3, "t": {"u": 2}}],
    "msgs": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi <b>"},
             {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {
                 "name": "f", "arguments": {"x": 1, "y": [1, 2], "é": "ü"}}}]},
             {"role": "tool", "content": "4", "tool_call_id": "c1"}],
}
NAMES = sorted(VARIABLES) + ["missing", "d.missing", "msgs[0].tool_calls", "nd.x", "rows[0]"]
LITERALS = ["0", "1", "2", "-1", "3", "10", "255", "1000000", "2.5", "0.5", "-1.5", "1e3", "3.0", "''", "'a'", "'l'", "' '",
            "'ab'", "','", "'\\n'", "'é'", "true", "false", "none", "[]", "[1, 2]", "['a', 'b']", "(1,)", "(1, 'a')", "()",
            "{}", "{'a': 1}", "range(3)", "range(5, 0, -2)", "nope", "'x'|safe", "'<'|e", "d.items()", "d.keys()",
            "d.values()", "namespace(a=1)", "[1,2]|reverse", "'%s'", "'{}'", "'name'", "'role'"]
SHORT = ["0", "1", "2", "-1", "3", "'a'", "'l'", "''", "none", "true", "missing", "2.5", "[1]", "' '", "word", "two", "'name'"]

# Arguments that make sense, by name.
FILTERS = {
    "abs": [""], "attr": ["'name'", "'b'", "'items'", "'upper'", "'__class__'", "missing", "1"],
    "batch": ["2", "3, 'x'", "0", "2, fill_with=none", "'a'", "missing"], "capitalize": ["", "1"],
    "center": ["", "9", "width=4", "'a'", "10"], "count": [""], "length": [""],
    "d": ["", "'z'", "'z', true", "default_value=1", "boolean=true", "1, false"], "default": ["", "'z'", "'z', true", "none"],
    "dictsort": ["", "true", "false, 'value'", "by='value'", "reverse=true", "by='x'"], "e": [""], "escape": [""],
    "filesizeformat": ["", "true", "binary=false"], "first": ["", "1"], "last": [""], "float": ["", "1.5", "default=none", "'x'"],
    "forceescape": [""], "format": ["", "1", "1, 2", "'a', 3", "name='x'", "word, 2", "none"],
    "groupby": ["'n'", "'v'", "attribute='n'", "'t.u', default=0", "'n', case_sensitive=true", "0", "none", "'q'"],
    "indent": ["", "2", "2, true", "width=1, blank=true", "'> '", "'> ', true, true", "missing"],
    "int": ["", "7", "default=none", "0, 16", "base=2", "0, 0", "0, 8", "1.5", "'x'"], "items": [""],
    "join": ["", "', '", "d='-'", "attribute='n'", "', ', 'v'", "1", "missing", "'x'|safe"], "list": [""], "lower": [""],
    "upper": [""], "map": ["'upper'", "'string'", "attribute='n'", "attribute='t.u', default='-'", "'default', 'q'", "'join', '-'",
                           "attribute=0", "", "'nofilter'", "'length'", "'int', base=10", "attribute='n', x=1", "1"],
    "max": ["", "true", "attribute='v'", "case_sensitive=true"], "min": ["", "true", "attribute='v'"], "pprint": [""],
    "random": [""], "reject": ["", "'none'", "'odd'", "'equalto', 1", "'in', [1, 2]", "'string'", "'nope'"],
    "select": ["", "'none'", "'odd'", "'equalto', 'a'", "'>', 1", "'string'", "'divisibleby', 2", "'lt', 3", "'in', ints"],
    "rejectattr": ["'n'", "'t'", "'n', 'equalto', 'b'", "'t', 'defined'", "", "'v', 'odd'", "'role', 'in', ['user']"],
    "selectattr": ["'n'", "'t'", "'n', 'equalto', 'b'", "'t', 'defined'", "", "'v', 'gt', 1", "'role', '==', 'user'", "0", "none"],
    "replace": ["'a', 'b'", "'l', ''", "'', '-'", "'o', '0', 1", "old='h', new='j'", "'a'", "1, 2", "'e', missing", "'a', 'b', none"],
    "reverse": [""], "round": ["", "1", "2", "0, 'floor'", "1, 'ceil'", "method='ceil'", "-1", "0, 'x'", "none", "precision=3", "-1, 'floor'"],
    "safe": [""], "slice": ["2", "3, 'x'", "0", "2, fill_with=0", "-1", "'a'"],
    "sort": ["", "true", "case_sensitive=true", "attribute='n'", "attribute='n,v'", "false, true", "reverse=true, attribute='v'",
             "attribute='t.u'", "attribute=0"],
    "string": [""], "striptags": [""], "sum": ["", "'v'", "attribute='v'", "start=10", "none, 0.5", "start=[]", "start=''", "attribute='v', start=1"],
    "title": [""], "tojson": ["", "indent=2", "indent=4", "ensure_ascii=true", "sort_keys=true", "separators=(',', ':')", "true", "indent=0",
                              "indent='-'", "false, 1", "separators=[' , ', ' = ']"],
    "trim": ["", "'a'", "' h'", "chars='-'", "none", "1"],
    "truncate": ["", "5", "9, true", "3, false, ''", "length=6, leeway=0", "9, end='..'", "2", "5, true, '…', 0"],
    "unique": ["", "true", "attribute='n'", "false, 'v'", "case_sensitive=true"], "urlencode": [""], "urlize": [""],
    "wordcount": [""], "wordwrap": ["", "5"], "xmlattr": ["", "false"], "nofilter": [""],
}
TESTS = {
    "odd": [""], "even": [""], "divisibleby": [" 2", "(3)", " 0", " 'a'", "(missing)", ""], "defined": [""], "undefined": [""],
    "filter": [""], "test": [""], "none": [""], "boolean": [""], "false": [""], "true": [""], "integer": [""], "float": [""],
    "lower": [""], "upper": [""], "string": [""], "mapping": [""], "number": [""], "sequence": [""], "iterable": [""],
    "callable": [""], "sameas": [" true", "(none)", " 1", "(word)", "(missing)", "(ints)"], "escaped": [""],
    "in": [" [1, 'a']", " 'hello'", " d", " range(5)", " ints", " missing", " 3"],
    "eq": [" 1", "('a')"], "equalto": [" 'hello'", " 2.5"], "ne": [" 1", " none"], "gt": [" 1", " 'b'"], "greaterthan": ["(2)"],
    "ge": ["(3)"], "lt": [" 5", " 'z'", " none"], "lessthan": [" 2.5"], "le": [" 1"], "notest": [""], "sequence ": ["()"],
}
METHODS = {
    "capitalize": [""], "casefold": [""], "center": ["9", "9, '*'", "2", "'a'", "9, 'ab'", "10, '語'"],
    "count": ["'l'", "'', 1", "'o', 2, 4", "3", "1", "'a'", "none"], "encode": [""],
    "endswith": ["'o'", "('d', 'o')", "'l', 0, 4", "1", "''"], "expandtabs": ["", "4", "tabsize=2", "0"],
    "find": ["'l'", "'l', 3", "'l', -2, -1", "'z'", "1", "'', 9"], "format": ["", "1, 2", "'a', 'b'", "name=1", "word, two", "*ints", "**d"],
    "format_map": ["d", "{}"], "index": ["'l'", "'z'", "3", "3, 1", "1, 0, 2"], "isalnum": [""], "isalpha": [""], "isascii": [""],
    "isdecimal": [""], "isdigit": [""], "isidentifier": [""], "islower": [""], "isnumeric": [""], "isprintable": [""],
    "isspace": [""], "istitle": [""], "isupper": [""], "join": ["words", "'abc'", "ints", "d", "missing", "['x']", "words|map('upper')", "none"],
    "ljust": ["9", "9, '.'"], "lower": ["", "1"], "lstrip": ["", "'h '", "none"], "maketrans": ["{}"], "partition": ["'l'", "' '", "''", "1"],
    "removeprefix": ["'he'", "''", "1"], "removesuffix": ["'lo'", "''"], "replace": ["'l', 'L'", "'l', 'L', 1", "'', '.'", "'', '.', 2", "'l'", "1, 2",
                                                                                  "'l', 'L', -1"],
    "rfind": ["'l'", "'l', 0, 3", "''"], "rindex": ["'l'", "'z'"], "rjust": ["9", "9, '0'"], "rpartition": ["'l'", "'z'"],
    "rsplit": ["", "'l'", "',', 1", "none, 1", "maxsplit=1", "sep=' '", "''"], "rstrip": ["", "'o'", "'\\n '"],
    "split": ["", "'l'", "',', 1", "none, 1", "maxsplit=2", "sep='/'", "''", "' '", "1", "',', -1", "'\\n'"], "splitlines": ["", "true", "keepends=false"],
    "startswith": ["'he'", "('x', 'h')", "'l', 2", "['h']", "''", "missing"], "strip": ["", "'ho'", "' \\n'", "none", "1"], "swapcase": [""],
    "title": [""], "translate": ["{}"], "upper": [""], "zfill": ["9", "2", "'a'"],
    "get": ["'name'", "'zz'", "'zz', 1", "[]", "1", "", "'b', 2, 3"], "items": ["", "1"], "keys": [""], "values": [""], "copy": [""], "fromkeys": ["[1]"],
    "append": ["1"], "pop": [""], "update": ["{}"], "clear": [""], "sort": [""], "extend": ["[1]"], "setdefault": ["'a', 1"], "insert": ["0, 1"],
    "bit_length": [""], "is_integer": [""], "as_integer_ratio": [""], "conjugate": [""], "nope": ["", "1"], "__class__": [""], "__len__": [""],
}
ATTRIBUTES = ["name", "items", "keys", "role", "content", "upper", "real", "imag", "numerator", "denominator", "missing", "__class__", "_x", "x", "start",
              "stop", "step", "append", "a", "0", "1", "n"]
FORMATS = ["%s", "%d", "%5d", "%-5d|", "%05d", "%+d", "% d", "%x", "%X", "%#x", "%o", "%#o", "%e", "%.2e", "%E", "%f", "%.0f", "%.1f", "%8.3f", "%-8.2f|",
           "%g", "%.3g", "%G", "%#g", "%r", "%a", "%c", "%5s|", "%-5s|", "%.2s", "%%", "%i", "%u", "%s-%s", "%(name)s", "%(b)d", "%*d", "%.*f", "%z", "%",
           "%5%", "%.3d", "%+.2f", "%010.3f", "%s %% %s", "%5.1s|", "%ld"]
SPECS = ["", "d", "5", "<5", ">5", "^6", "*^9", "05", "+", "+d", " d", "x", "X", "#x", "o", "#o", "b", "#b", "c", "e", ".2e", "f", ".0f", ".1f", ",", "_", ",.2f",
         "g", ".3g", "G", "%", ".1%", "s", "10s", ".2", "08.3f", "=+8d", "n", "10.4", ".0", "<08", "é>6", "E", "z.1f", "_x", "6.2s", "q", "-", ".", "<"]
FIELDS = ["{}", "{0}", "{1}", "{0}{0}", "{!r}", "{!s:>6}", "{!a}", "{name}", "{0.real}", "{0[0]}", "{0[name]}", "{{}}", "{", "}", "{}{}", "{:{}}", "{:>{}}",
          "{0!x}", "{0.__class__}", "{a.b}", "{}{1}", "{0:}", "{:!<3}", "{0[0][1]}"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~"]
COMPARE = ["==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SUBSCRIPTS = ["0", "1", "-1", "9", "'name'", "'a'", "none", "true", "1.0", "missing", "[]", "(1, 2)", ":", "1:", ":2", "-2:", ":-1", "::2", "::-1", "1:3", "3:1:-1", "::0",
              "none:none", "'a':", "missing:", "1:2:none", "two", "-100:100", "5:1:-2", ":1.5"]
GLOBALS = ["range({x})", "range({x}, {y})", "range({x}, {y}, {z})", "range({x})|list", "dict({x})", "dict(a={x})", "dict(d, a={x})", "dict(pairs)",
           "namespace(a={x}).a", "namespace(d).b", "namespace({x})", "cycler({x}, {y}).next()", "cycler({x}).current", "joiner({x})()", "cycler()",
           "joiner()() ~ 'x'", "lipsum()", "raise_exception({x})", "namespace(a={x})['a']", "namespace(a={x}).b", "range({x})[{y}]", "{x} in range({y})",
           "range({x}) == range({y})", "range(10)[{x}:{y}]", "dict(a={x}) == {{'a': {y}}}", "range(3)|sum", "namespace", "range(3) is iterable"]
# Statements; {x}, {y} and {z} are expressions.
STATEMENTS = [
    "{% for i in {x} %}[{{ i }}]{% endfor %}", "{% for i in {x} %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in {x} %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for i in {x} if i %}{{ i }}{{ loop.index0 }}{{ loop.revindex }}{% endfor %}",
    "{% for k, v in {x} %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for i in {x} %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop.first }}{{ loop.depth }}{% endfor %}",
    "{% for i in {x} %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }}{% endfor %}", "{% for i in [1,2,3,4] %}{% if i == {x} %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1,2,3,4] %}{% if i == {x} %}{% continue %}{% endif %}{{ i }}{% else %}e{% endfor %}", "{% for i in nested recursive %}{{ i }}{% if i is iterable and i is not string %}({{ loop(i) }}){% endif %}{{ loop.depth0 }}{% endfor %}",
    "{% if {x} %}yes{% elif {y} %}maybe{% else %}no{% endif %}", "{% if {x}, {y} %}t{% endif %}", "{% set v = {x} %}{{ v }}{{ v }}", "{% set p, q = {x} %}{{ p }}-{{ q }}",
    "{% set p, q = {x}, {y} %}{{ p }}-{{ q }}", "{% set v %}a{{ {x} }}b{% endset %}{{ v }}{{ v|length }}", "{% set v | upper %}a{{ {x} }}b{% endset %}{{ v }}",
    "{% set ns = namespace(n={x}) %}{% for i in [1,2] %}{% set ns.n = ns.n ~ i %}{% endfor %}{{ ns.n }}", "{% set ns = namespace(n=0) %}{% for i in {x} %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% set v = 1 %}{% for i in [1,2] %}{{ v }}{% set v = {x} %}{{ v }}{% endfor %}{{ v }}", "{% set v = 1 %}{% if {x} %}{% set v = 2 %}{% endif %}{{ v }}",
    "{% macro m(a, b={x}) %}({{ a }},{{ b }}){% endmacro %}{{ m(1) }}{{ m({y}, 2) }}{{ m(b=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, {x}, k={y}) }}",
    "{% macro m() %}<{{ caller({x}) }}>{% endmacro %}{% call(v) m() %}{{ v }}!{% endcall %}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m({x}, {y}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q={x}) }}",
    "{% macro m(a) %}{{ a }}{% if a and a is number and a > 0 %}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}{{ caller is defined }}{{ caller }}{% endmacro %}{{ m() }}",
    "{% with v = {x}, w = v %}{{ v }}{{ w }}{% endwith %}{{ v }}", "{% filter upper %}a{{ {x} }}{% endfilter %}", "{% filter replace('a', {x}) %}banana{% endfilter %}",
    "{% block b %}{{ {x} }}{% endblock %}", "{% set v = {x} %}{% block b %}{{ v }}{% endblock %}", "{% generation %}{{ {x} }}{% endgeneration %}", "{% print {x}, {y} %}",
    "{% raw %}{{ {x} }}{% endraw %}", "  {% if {x} %}\n  a\n  {%- endif %}\n  b\n", "{# {x} #}\n x {#- y -#} z", " {%- if {x} -%} a {%- endif +%}\nb", "{%+ if true %}  x{% endif %}\n\n", "a\n  {% set v = {x} %}  \n b",
    "{{ {x} if {y} }}", "{{ {x} if {y} else {z} }}", "{% for i in {x} %}{% for j in {y} %}{{ loop.index }}{{ i }}{{ j }}{% endfor %}{% endfor %}", "{% set g = {x}|map('string') %}{{ g|list }}{{ g|list }}",
    "{% for i in {x}|reverse %}{{ i }}{{ loop.last }}{% endfor %}", "{% for i in d %}{{ i }}{{ d[i] }}{% endfor %}", "{% include {x} %}", "{% set x.y = {x} %}", "{% for i in {x} %}{{ loop }}{% endfor %}",
    "{{- {x} -}}  x", "{{ {x} }}\n{{- {y} }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m({x}) }}{{ m }}{{ m.name }}{{ m.arguments }}", "{{ msgs[{x}].content }}{{ msgs[{x}]['role'] }}",
    "{% for m in msgs %}{{ m.role }}:{{ m.content|default({x}, true) }}{{ m.tool_calls|length }}{% for t in m.tool_calls %}{{ t.function.arguments|tojson }}{% endfor %}{% endfor %}",
    "{% set l = [] %}{{ l.append({x}) }}", "{% do {x} %}", "{% for loop in {x} %}{% endfor %}", "{% autoescape true %}{{ {x} }}{% endautoescape %}", "{{ self }}", "{% for i in {x} %}{{ i }}", "{% endif %}", "{{ {x} ",
    "{% set ns = namespace() %}{% set ns.a = {x} %}{{ ns.a }}{{ ns }}", "{% set a, ns.b = {x} %}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ [1, {x}]|map('string')|map('upper')|join('.') }}{{ m(*[{y}]) }}{{ m(**{'x': {z}}) }}",
    "{% for x in {x} %}{{ x }}{% endfor %}{{ x }}", "{% for i in [1,2,3] if i is odd %}{{ loop.length }}{{ loop.last }}{{ i }}{% endfor %}", "{% set (a, b), c = [{x}, {y}] %}{{ a }}{{ b }}{{ c }}",
    "{% if {x} is defined and {x} is not none %}{{ {x} }}{% endif %}", "{% set v = {x} %}{% macro m() %}{{ v }}{% endmacro %}{% set v = {y} %}{{ m() }}", "{% call range(3) %}{% endcall %}", "{% extends 'x' %}", "{% import 'x' as y %}",
]


def fill(pattern, *values):
    for name, value in zip("xyz", values):
        pattern = pattern.replace("{" + name + "}", value)
    return pattern


def call(name, args):
    return name + (f"({args})" if args else "")


def systematic():
    """Every filter, test, method and operator with every value, in a fixed order."""
    values = NAMES + LITERALS
    for value, (name, all_args) in itertools.product(values, FILTERS.items()):
        for args in all_args:
            yield "{{ (" + value + ")|" + call(name, args) + "|" + "list }}" if name in (
                "map", "select", "reject", "selectattr", "rejectattr", "batch", "slice", "unique", "items", "reverse") else \
                "{{ (" + value + ")|" + call(name, args) + " }}"
    for value, (name, all_args) in itertools.product(values, TESTS.items()):
        for args in all_args:
            yield "{{ (" + value + ") is " + name + args + " }}"
    for value, (name, all_args) in itertools.product(values, METHODS.items()):
        for args in all_args:
            yield "{{ (" + value + ")." + name + "(" + args + ") }}"
    for left, right in itertools.product(values, values):
        for operator in BINARY + COMPARE:
            yield "{{ (" + left + ") " + operator + " (" + right + ") }}"
    for value in values:
        for prefix in ("-", "+", "not "):
            yield "{{ " + prefix + "(" + value + ") }}"
        for subscript in SUBSCRIPTS:
            yield "{{ (" + value + ")[" + subscript + "] }}"
        for attribute in ATTRIBUTES:
            yield "{{ (" + value + ")." + attribute + " }}"
        for form in FORMATS:
            yield "{{ '" + form + "' % (" + value + ") }}"
            yield "{{ '" + form + "'|format(" + value + ") }}"
        for spec in SPECS:
            yield "{{ '{:" + spec + "}'.format(" + value + ") }}"
        for field in FIELDS:
            yield "{{ '" + field + "'.format(" + value + ", 3, name=" + value + ") }}"
        for pattern in STATEMENTS + ["{{ " + one + " }}" for one in GLOBALS]:
            yield fill(pattern.replace("{{'a'", "{'a'"), value, "two", "ints")


class Random:
    """Nested expressions."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, items):
        return self.random.choice(items)

    def atom(self):
        return self.pick(NAMES) if self.random.random() < 0.7 else self.pick(LITERALS)

    def args(self, all_args, depth):
        if self.random.random() < 0.8:
            return self.pick(all_args)
        return ", ".join(self.expression(depth - 1) if depth > 1 else self.pick(SHORT) for _ in range(self.random.randrange(3)))

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        inner = lambda: self.expression(depth - 1 - self.random.randrange(2))
        kind = self.random.randrange(16)
        if kind <= 3:
            name = self.pick(list(FILTERS))
            return f"({inner()})|{call(name, self.args(FILTERS[name], depth))}"
        if kind == 4:
            name = self.pick(list(TESTS))
            return f"(({inner()}) is {self.pick(['', 'not '])}{name}{self.pick(TESTS[name])})"
        if kind <= 6:
            name = self.pick(list(METHODS))
            return f"({inner()}).{name}({self.args(METHODS[name], depth)})"
        if kind <= 8:
            return f"({inner()} {self.pick(BINARY)} {inner()})"
        if kind == 9:
            return f"({inner()} {self.pick(COMPARE)} {inner()})"
        if kind == 10:
            return f"({inner()})[{self.pick(SUBSCRIPTS)}]"
        if kind == 11:
            return f"({inner()}).{self.pick(ATTRIBUTES)}"
        if kind == 12:
            return f"({inner()} if {inner()} else {inner()})"
        if kind == 13:
            return self.pick([f"[{inner()}, {inner()}]", f"({inner()}, {inner()})", "{'k': " + inner() + ", 'l': " + inner() + "}", f"not {inner()}", f"-({inner()})"])
        if kind == 14:
            return self.pick(["'" + self.pick(FORMATS) + "' % (" + inner() + ")", "'{:" + self.pick(SPECS) + "}'.format(" + inner() + ")"])
        return "(" + fill(self.pick(GLOBALS).replace("{{'a'", "{'a'"), inner(), inner(), inner()).replace("}}}", "}}") + ")"

    def template(self):
        if self.random.random() < 0.2:
            return fill(self.pick(STATEMENTS), *(self.expression(self.random.randrange(3)) for _ in range(3)))
        expression = self.expression(1 + self.random.randrange(4))
        return "{{ " + expression + self.pick(["", "", "|list", "|tojson", "|string", "|join(',')", "|length"]) + " }}"


def templates(seed):
    """Half of them are drawn from `systematic`, half are nested; without end."""
    everything = list(systematic())
    random.Random(seed).shuffle(everything)
    generator = Random(seed)
    while True:
        for template in everything:
            yield template
            yield generator.template()
