#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tool for `continuo chat --tools`: reads {"name": "Mira"} and prints where Mira is."""
import json
import sys

PLACES = {"Ada": "London", "Emma": "the library", "Mira": "Lisbon", "Noah": "the garden", "Tom": "Oslo"}

name = json.load(sys.stdin).get("name")
if not isinstance(name, str) or name not in PLACES:
    print(f"nobody knows where {name} is", file=sys.stderr)
    sys.exit(1)
print(PLACES[name])
