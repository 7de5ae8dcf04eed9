#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The arrows between modules hold: every include goes to a module that the includer may know.

Also: no source file is longer than 600 lines, and each begins with its SPDX line.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Module (folder) -> modules whose headers it may include. Longest folder wins. A `main` also sees
# what it puts together.
ALLOWED = {
    "services/base": set(),
    "kernels": {"services/base"},
    "services/common": {"services/base", "proto"},
    "services/worker/text": {"services/base"},
    "services/worker/model": {"services/base", "kernels"},
    "services/worker/engine": {"services/base", "services/worker/model", "services/worker/text"},
    "services/worker/server": {
        "services/base", "services/common", "proto", "services/worker/engine",
        "services/worker/text",
    },
    # main.cc and config.*: composition.
    "services/worker": {
        "services/base", "services/common", "proto", "kernels", "services/worker/model",
        "services/worker/engine", "services/worker/text", "services/worker/server",
    },
    "services/gateway": {"services/base", "services/common", "proto"},
    "services/cli": {"services/base", "services/common", "proto"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.M)
# A value type of the model that the server hands through (StepPlan's parts in engine/request.h).
KNOWS_NO_GRPC = ("kernels", "services/worker/text", "services/worker/model",
                 "services/worker/engine", "services/base")


def module_of(path):
    best = ""
    for module in ALLOWED:
        if path.startswith(module + "/") and len(module) > len(best):
            best = module
    if path.startswith("continuo/v1/") or path.startswith("google/rpc/"):
        return "proto"
    return best


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        files = listed.stdout.split()
    else:
        files = [str(p.relative_to(ROOT)) for d in ("kernels", "services", "tests")
                 for p in (ROOT / d).rglob("*") if p.is_file()]
    errors, num_includes = [], 0
    for name in files:
        if not name.endswith((".cc", ".h", ".cu", ".cuh", ".rs", ".py", ".sh")):
            continue
        path = ROOT / name
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 600:
            errors.append(f"{name}: {text.count(chr(10))} lines, at most 600")
        if text and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.split("\n")[:3]):
            errors.append(f"{name}: no SPDX line at the top")
        if not name.endswith((".cc", ".h", ".cu", ".cuh")) or name.startswith("tests/"):
            continue
        includer = module_of(name)
        for included in INCLUDE.findall(text):
            num_includes += 1
            target = module_of(included)
            if target and includer and target != includer and target not in ALLOWED[includer]:
                errors.append(f"{name} includes {included}: {includer} may not know {target}")
            if includer in KNOWS_NO_GRPC and included.startswith(("grpc", "google/protobuf")):
                errors.append(f"{name} includes {included}: {includer} knows no gRPC")
    for error in errors:
        print(error)
    print(f"{num_includes} includes, {len(errors)} errors")
    return 1 if errors or num_includes == 0 else 0


sys.exit(main())
