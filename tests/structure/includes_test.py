#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The arrows between folders hold: every include goes to a folder that the includer may know, and the
arrows form no circle. A folder that knows gRPC does not know the engine's inside. No source file is longer than 600 lines, and each begins with its SPDX line.
"""
import sys

from layout import (ALLOWED, ENGINE_INSIDE, INCLUDE, KNOWS_GRPC_AND_ENGINE, KNOWS_MESSAGES_ONLY, KNOWS_NO_GRPC, ROOT,
                    folder_of, repository_files)


def circle(arrows):
    """A list of folders that leads back to its first, or None."""
    done = set()

    def visit(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder not in done:
            for target in arrows.get(folder, "").split():
                found = visit(target, path + [folder])
                if found:
                    return found
            done.add(folder)
        return None

    return next((found for folder in arrows if (found := visit(folder, []))), None)


def main():
    errors, num_includes = [], 0
    found = circle(ALLOWED)
    if found:
        errors.append("the table has a circle: " + " -> ".join(found))
    used, grpc_folders = set(), {"services/common/grpc"}
    for name in repository_files():
        if not name.endswith((".cc", ".h", ".cu", ".cuh", ".rs", ".py", ".sh")):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if text.count("\n") > 600:
            errors.append(f"{name}: {text.count(chr(10))} lines, at most 600")
        if text and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.split("\n")[:3]):
            errors.append(f"{name}: no SPDX line at the top")
        if not name.endswith((".cc", ".h", ".cu", ".cuh")) or not name.startswith(("kernels/", "services/")):
            continue
        includer = folder_of(name)
        if not includer:
            errors.append(f"{name}: its folder is not in the table of tests/structure/layout.py")
            continue
        for included in INCLUDE.findall(text):
            num_includes += 1
            if included.startswith("grpc"):
                grpc_folders.add(includer)
            target = folder_of(included)
            if target and target != includer:
                used.add((includer, target))
                if target not in ALLOWED[includer].split():
                    errors.append(f"{name} includes {included}: {includer} may not know {target}")
            if includer.startswith(KNOWS_NO_GRPC) and included.startswith(("grpc", "google/protobuf")):
                errors.append(f"{name} includes {included}: {includer} knows no gRPC")
            if includer.startswith(KNOWS_MESSAGES_ONLY) and included.startswith("grpc"):
                errors.append(f"{name} includes {included}: {includer} knows no gRPC")
    for includer, target in sorted(used):
        knows_grpc = includer in grpc_folders or (includer, "services/common/grpc") in used
        if knows_grpc and target in ENGINE_INSIDE and target not in KNOWS_GRPC_AND_ENGINE.get(includer, "").split():
            errors.append(f"{includer} knows gRPC and {target}, which is the engine's inside")
    for includer, targets in ALLOWED.items():
        for target in targets.split():
            if (includer, target) not in used:
                errors.append(f"the table lets {includer} know {target}, and nothing needs it")
    for error in errors:
        print(error)
    print(f"{num_includes} includes, {len(errors)} errors")
    return 1 if errors or num_includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
