# SPDX-License-Identifier: Apache-2.0
"""Fails for a member of KServe's resources in the file argv[1] that kserve's own types do not have, or whose kind of
value is another one; run with the Python that has kserve."""
import re
import sys

import yaml
from kserve import models
from kubernetes import client

PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}
checked = 0


def check(value, kind, path):
    global checked
    checked += 1
    if kind in ("object", "datetime"):
        return
    if many := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        if not isinstance(value, list):
            sys.exit(f"{path}: no list")
        for i, element in enumerate(value):
            check(element, many[1], f"{path}[{i}]")
    elif many := re.fullmatch(r"(?:dict\(|Dict\[)str, (.+)[)\]]", kind):
        for name, element in value.items():
            check(element, many[1], f"{path}.{name}")
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]):
            sys.exit(f"{path}: {value!r} is no {kind}")
    else:
        of = getattr(models, kind, None) or getattr(client, kind)
        attributes = {name: attribute for attribute, name in of.attribute_map.items()}
        for name, element in value.items():
            if name not in attributes:
                sys.exit(f"{path}.{name}: {kind} has no such member")
            check(element, of.openapi_types[attributes[name]], f"{path}.{name}")


for document in yaml.safe_load_all(open(sys.argv[1], encoding="utf-8")):
    version = document["apiVersion"].removeprefix("serving.kserve.io/")
    check(document, version.capitalize() + document["kind"], document["kind"])
print(checked)
