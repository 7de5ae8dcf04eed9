#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the tests that a ctest JUnit report says were skipped.

With CONTINUO_REQUIRE_SHARED=1 a skipped test is a failure: all that it needs is expected to be
there. Tests that need a GPU (gpu/...) may always be skipped.
"""
import os
import sys
import xml.etree.ElementTree as ElementTree

skipped = [
    case.get("name", "?")
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    if case.get("status") in ("notrun", "disabled") or case.find("skipped") is not None
]
required = [name for name in skipped if not name.startswith("gpu/")]
for name in skipped:
    print(f"skipped: {name}")
if required and os.environ.get("CONTINUO_REQUIRE_SHARED") == "1":
    print(f"{len(required)} tests were skipped where all must run")
    sys.exit(1)
