#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a statement of provenance for the files of a release: what they are and from which commit they were
made, by which tools.

    provenance.py SHA256SUMS VERSION

Format: in-toto Statement v1 with SLSA Provenance v1 (slsa.dev/spec/v1.0/provenance). It is not signed;
docs/release.md says how to.
"""
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def main():
    sums, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    subjects = []
    for line in sums.read_text().splitlines():
        digest, name = line.split("  ", 1)
        subjects.append({"name": name, "digest": {"sha256": digest}})
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]),
                                           datetime.timezone.utc)
    tools = {"cmake": output_of("cmake", "--version").splitlines()[0],
             "c++": output_of("c++", "--version").splitlines()[0],
             "rustc": output_of("rustc", "--version").strip(),
             "system": platform.freedesktop_os_release()["PRETTY_NAME"]}
    print(json.dumps({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://continuo.invalid/release.sh/v1",
                "externalParameters": {"version": version},
                "internalParameters": tools,
                "resolvedDependencies": [{
                    "name": "continuo",
                    "digest": {"gitCommit": output_of("git", "rev-parse", "HEAD").strip()},
                }],
            },
            "runDetails": {
                "builder": {"id": "https://continuo.invalid/release.sh"},
                "metadata": {"startedOn": time.isoformat()},
            },
        },
    }, indent=2))


main()
