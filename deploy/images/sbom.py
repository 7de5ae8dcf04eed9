#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the CycloneDX bill of materials of one image: the program, the Debian packages whose
libraries it loads, those whose headers or archives are compiled into it, its Rust crates and the
Python wheels that libraries of CUDA come in."""
import argparse
import email
import hashlib
import json
import pathlib
import re
import subprocess
import uuid

# These are header-only or linked as archives, so the programs contain them and load nothing of them.
COMPILED_IN = ["libboost-dev", "libcli11-dev", "nlohmann-json3-dev", "prometheus-cpp-dev"]


def package(name, architecture):
    """The entry of a package, which is of the architecture or of none."""
    def field(which):
        for qualified in (f"{name}:{architecture}", name):
            told = subprocess.run(["dpkg-query", "-W", "-f", "${%s}" % which, qualified], capture_output=True, text=True)
            if told.returncode == 0 and told.stdout:
                return told.stdout.split("\n")[0]
        raise SystemExit(f"sbom.py: package {name} is not installed")
    version, architecture = field("Version"), field("Architecture")
    source = field("source:Package")
    copyright_file = pathlib.Path("/usr/share/doc", name, "copyright")
    licences = sorted(set(re.findall(r"^License: *(\S+)", copyright_file.read_text(errors="replace"),
                                     re.MULTILINE))) if copyright_file.exists() else []
    return {"type": "library", "bom-ref": f"deb/{name}", "name": name, "version": version,
            "purl": f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}"
                    f"?arch={architecture}&upstream={source}",
            **({"licenses": [{"license": {"name": licence}} for licence in licences]}
               if licences else {})}


def crate(entry):
    return {"type": "library", "bom-ref": f"cargo/{entry['name']}@{entry['version']}",
            "name": entry["name"], "version": entry["version"],
            "purl": f"pkg:cargo/{entry['name']}@{entry['version'].replace('+', '%2B')}",
            **({"licenses": [{"expression": entry["license"].replace("/", " OR ")}]}
               if entry["license"] else {})}


def wheel(folder):
    """The entry of a wheel, from its folder *.dist-info."""
    with open(pathlib.Path(folder, "METADATA"), encoding="utf-8") as file:
        fields = email.message_from_file(file)
    name, version = fields["Name"], fields["Version"]
    licence = fields["License-Expression"] or fields["License"]
    return {"type": "library", "bom-ref": f"pypi/{name}", "name": name, "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            **({"licenses": [{"license": {"name": licence}}]} if licence else {})}


def main():
    parser = argparse.ArgumentParser()
    for option in ("--image", "--program", "--version", "--architecture", "--output"):
        parser.add_argument(option, required=True)
    parser.add_argument("--crates")
    parser.add_argument("--wheel", action="append", default=[])
    parser.add_argument("packages", nargs="+", help="as dpkg -S names them, NAME:ARCHITECTURE among them")
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.program)
    version = arguments.version
    names = {*(name.split(":")[0] for name in arguments.packages), *COMPILED_IN}
    components = [package(name, arguments.architecture) for name in sorted(names)]
    if arguments.crates:
        components += [crate(entry) for entry in json.loads(
            pathlib.Path(arguments.crates).read_text())]
    components += [wheel(folder) for folder in sorted(set(arguments.wheel))]
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    root = {"type": "application", "bom-ref": program.name, "name": program.name,
            "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}]}
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5",
           "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}", "version": 1,
           "metadata": {"component": {"type": "container", "bom-ref": "image",
                                      "name": f"continuo-{arguments.image}", "version": version}},
           "components": [root, *components],
           "dependencies": [{"ref": "image", "dependsOn": [program.name]},
                            {"ref": program.name,
                             "dependsOn": [c["bom-ref"] for c in components]}]}
    pathlib.Path(arguments.output).write_text(json.dumps(bom, indent=1) + "\n")


main()
