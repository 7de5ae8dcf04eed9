#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the promises of every image: an unprivileged user, labels, nothing that runs but its
program, all of its files of its architecture, and a bill of materials with what the program loads.

    check_image.py ARCHIVE ROOT NAME VERSION REVISION ARCH    an OCI archive, and where its root is mounted
"""
import json
import pathlib
import stat
import sys
import tarfile


def config_of(archive):
    with tarfile.open(archive) as tar:
        def blob(digest):
            return json.load(tar.extractfile(f"blobs/{digest.replace(':', '/')}"))
        manifest = blob(json.load(tar.extractfile("index.json"))["manifests"][0]["digest"])
        return blob(manifest["config"]["digest"])


def machine_of(path):
    """The architecture of an ELF file (its field e_machine), None for any other file."""
    with open(path, "rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF":
        return None
    return {62: "amd64", 183: "arm64"}.get(int.from_bytes(head[18:20], "little"), "another")


def problems(archive, root, name, version, revision, architecture):
    image = config_of(archive)
    config = image["config"]
    if image["architecture"] != architecture:
        yield f"its configuration says {image['architecture']}, not {architecture}"
    labels = config.get("Labels", {})
    if config.get("User") != "65532:65532":
        yield f"runs as {config.get('User')!r}"
    told = {key: labels.get(f"org.opencontainers.image.{key}", "unknown")
            for key in ("title", "description", "version", "revision", "licenses")}
    for key, value in told.items():
        if value == "unknown" and key != "revision":
            yield f"label {key} is missing"
    if not name.startswith(told["title"]) or (told["version"], told["revision"]) != (version, revision):
        yield f"labels tell of {told}"
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    program = config["Entrypoint"][0].lstrip("/")
    for path in files:
        mode, inside = path.stat().st_mode, str(path.relative_to(root))
        if machine_of(path) not in (None, architecture):
            yield f"{inside} is a program of {machine_of(path)}"
        if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH):
            yield f"{inside} has mode {oct(mode)}"
        if inside.split("/")[-2:-1] in (["bin"], ["sbin"]) and inside != program:
            yield f"{inside} runs, too"
    if not (root / program).is_file():
        yield f"{program} is not there"
    bill = json.loads((root / labels["io.continuo.sbom"].lstrip("/")).read_text())
    if bill["metadata"]["component"]["name"] != name or bill["metadata"]["component"]["version"] != version:
        yield f"the bill of materials is of {bill['metadata']['component']}"
    components = bill["components"]
    names = {component["name"] for component in components}
    for component in components:
        if not component.get("version") or (component["type"] == "library" and not component.get("purl")):
            yield f"{component['name']} has no version or no purl in the bill of materials"
    for needed in ("libc6", "libgrpc++", "libprotobuf"):
        if not any(n.startswith(needed) for n in names):
            yield f"{needed} is not in the bill of materials"
    # An image has libraries, and no program of ours is made of fewer than 20 packages and crates.
    num_libraries = len({path.name.split(".so")[0] for path in files if ".so" in path.name})
    if num_libraries == 0 or len(components) < 20:
        yield f"{len(components)} components for {num_libraries} libraries"


def main():
    archive, root, *told = sys.argv[1:]
    name = told[0]
    found = list(problems(archive, pathlib.Path(root), *told))
    for problem in found:
        print(f"{name}: {problem}", file=sys.stderr)
    return 1 if found else 0


sys.exit(main())
