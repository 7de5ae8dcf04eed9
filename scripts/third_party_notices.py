#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes THIRD_PARTY_NOTICES.md: what the programs link, with licences. With --json prints the Rust
crates among it, for the images' bills of materials.

The Rust crates come from `cargo metadata` of the committed lock file; the Debian packages are
listed here, with the licences that their copyright files state.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "services/worker/text/rust/Cargo.toml"
PACKAGES = [
    ("Abseil", "Apache-2.0"), ("Boost", "BSL-1.0"), ("c-ares", "MIT"),
    ("CLI11", "BSD-3-Clause"), ("gRPC", "Apache-2.0"), ("minizip", "Zlib"), ("nlohmann-json", "MIT"),
    ("OpenSSL", "Apache-2.0"), ("prometheus-cpp", "MIT"), ("Protocol Buffers", "BSD-3-Clause"),
    ("RE2", "BSD-3-Clause"), ("xxHash", "BSD-2-Clause"), ("zlib", "Zlib"),
]
# tests/helm/make_schemas.py
SCHEMAS = ["github.com/cert-manager/cert-manager", "github.com/kedacore/keda/v2",
           "github.com/prometheus-operator/prometheus-operator", "k8s.io/kubernetes",
           "sigs.k8s.io/gateway-api", "sigs.k8s.io/gateway-api-inference-extension"]


def linked_crates():
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform",
         "x86_64-unknown-linux-gnu", "--manifest-path", MANIFEST],
        check=True, capture_output=True, text=True).stdout)
    nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}
    packages = {p["id"]: p for p in metadata["packages"]}
    linked, queue = set(), [metadata["resolve"]["root"]]
    while queue:
        node = queue.pop()
        if node in linked:
            continue
        linked.add(node)
        # Normal dependencies only: build scripts are not linked.
        queue += [d["pkg"] for d in nodes[node]["deps"]
                  if any(k["kind"] is None for k in d["dep_kinds"])]
    linked.discard(metadata["resolve"]["root"])
    return [{key: packages[i][key] for key in ("name", "version", "license")}
            for i in sorted(linked, key=lambda i: (packages[i]["name"], packages[i]["version"]))]


def main():
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(linked_crates()))
        return
    lines = ["# Third-party notices", "",
             "The programs link these; their licence texts are in the packages named.",
             "Made by `scripts/third_party_notices.py`.", "",
             "## From Debian's packages", "", "| library | licence |", "| --- | --- |"]
    lines += [f"| {name} | {licence} |" for name, licence in PACKAGES]
    lines += ["", "## Rust crates in the text library", "",
              "| crate | version | licence |", "| --- | --- | --- |"]
    for package in linked_crates():
        lines.append(f"| {package['name']} | {package['version']} | {package['license'] or '?'} |")
    lines += ["", "## In the repository, for tests", "",
              "`tests/helm/schemas` is derived from the API definitions of these, without their texts.", "",
              "| Go module | licence |", "| --- | --- |"]
    lines += [f"| {module} | Apache-2.0 |" for module in SCHEMAS]
    (ROOT / "THIRD_PARTY_NOTICES.md").write_text("\n".join(lines) + "\n")


main()
