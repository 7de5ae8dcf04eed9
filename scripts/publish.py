#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pushes what scripts/release.sh has made to a registry: images, the chart, and beside each image its bill of
materials and the statement of provenance, as referrers that oras, cosign and scanners find by the image's digest.

    scripts/publish.py [--plain_http] [--key KEY [--transparency_log]] REGISTRY DIR...

Each DIR is the release as a machine of one architecture has made it. The images are
REGISTRY/continuo-NAME:VERSION, an index of all architectures, and the chart is REGISTRY/charts/continuo:VERSION.
Credentials are those of `oras login` and `helm registry login`. Prints each digest. The same files give the same
digests, so it may be run again. Needs scripts/oras.sh and scripts/helm_tools.sh.

--key signs the digests, and those of each architecture's images, by cosign (scripts/cosign.sh): a private key's file,
whose password is $COSIGN_PASSWORD, or the URI of one in a KMS. --transparency_log tells the public log (Rekor) of the
signatures, and with it the names and digests.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ORAS = os.environ.get("ORAS", ROOT / "build/oras/bin/oras")
COSIGN = os.environ.get("COSIGN", ROOT / "build/cosign/bin/cosign")
HELM = ROOT / "build/tools/bin/helm"
IMAGES = ("continuo-gateway", "continuo-worker-cpu", "continuo-cli")
PROVENANCE = "provenance.intoto.json"
BILL_TYPE = "application/vnd.cyclonedx+json"
STATEMENT_TYPE = "application/vnd.in-toto+json"


class Bad(Exception):
    """What is wrong with a release."""


def run(*command, cwd=None):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, cwd=cwd)
    if done.returncode != 0:
        raise Bad(f"{pathlib.Path(command[0]).name} {command[1]}: {done.stderr.strip()}")
    return done.stdout


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Release:
    """A folder of release.sh, with its files checked against their digests."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        sums = dict(reversed(line.split("  ", 1)) for line in
                    self._text("SHA256SUMS").splitlines())
        for name, digest in sums.items():
            path = self.folder / name
            if pathlib.Path(name).name != name or not path.is_file() or digest_of(path) != digest:
                raise Bad(f"{path} is not the file of SHA256SUMS")
        needed = [f"{image}.{ending}" for image in IMAGES for ending in ("tar", "sbom.cdx.json")]
        for name in needed:
            if name not in sums:
                raise Bad(f"{folder} has no {name}")
        charts = [name for name in sums if re.fullmatch(r"continuo-[0-9.]+\.tgz", name)]
        if len(charts) != 1:
            raise Bad(f"{folder} has {len(charts)} charts")
        self.chart = self.folder / charts[0]
        self.version = charts[0].removeprefix("continuo-").removesuffix(".tgz")
        statement = json.loads(self._text(PROVENANCE))
        if {s["name"]: s["digest"]["sha256"] for s in statement["subject"]} != sums:
            raise Bad(f"{folder}/{PROVENANCE} is not of these files")
        predicate = statement["predicate"]
        self.commit = predicate["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"]
        self.time = predicate["runDetails"]["metadata"]["startedOn"]

    def _text(self, name):
        try:
            return (self.folder / name).read_text()
        except OSError as error:
            raise Bad(str(error)) from None

    def manifest(self, image):
        """(digest, architecture) of the image in its archive."""
        with tarfile.open(self.folder / f"{image}.tar") as tar:
            def blob(digest):
                return json.load(tar.extractfile(f"blobs/{digest.replace(':', '/')}"))
            manifests = json.load(tar.extractfile("index.json"))["manifests"]
            if len(manifests) != 1:
                raise Bad(f"{self.folder}/{image}.tar has {len(manifests)} images")
            digest = manifests[0]["digest"]
            return digest, blob(blob(digest)["config"]["digest"])["architecture"]


class Publisher:
    def __init__(self, registry, plain_http, key, transparency_log):
        self.registry = registry
        self.http = ["--plain-http"] if plain_http else []
        self.key = key
        self.sign_options = ["--yes", "--key", key, f"--tlog-upload={str(transparency_log).lower()}",
                             *["--allow-http-registry" for _ in self.http]]

    def sign(self, address):
        """An index with its images, or what the address is of."""
        if self.key is not None:
            run(COSIGN, "sign", "--recursive", *self.sign_options, address)
        print(address)

    def attach(self, release, subject, file, kind):
        run(ORAS, "attach", *self.http, "--artifact-type", kind, "--annotation",
            f"org.opencontainers.image.created={release.time}", subject, f"{file}:{kind}",
            cwd=release.folder)

    def image(self, releases, image):
        """Pushes the image of each architecture and the index of all; returns the index' digest."""
        name, digests = f"{self.registry}/{image}", []
        for release in releases:
            digest, _ = release.manifest(image)
            run(ORAS, "cp", *[f"--to{h[1:]}" for h in self.http], "--from-oci-layout",
                f"{(release.folder / image).resolve()}.tar@{digest}", f"{name}@{digest}")
            self.attach(release, f"{name}@{digest}", f"{image}.sbom.cdx.json", BILL_TYPE)
            self.attach(release, f"{name}@{digest}", PROVENANCE, STATEMENT_TYPE)
            digests.append(digest)
        run(ORAS, "manifest", "index", "create", *self.http, f"{name}:{releases[0].version}", *digests)
        return run(ORAS, "resolve", *self.http, f"{name}:{releases[0].version}").strip()

    def chart(self, release):
        told = subprocess.run([HELM, "push", release.chart, f"oci://{self.registry}/charts", *self.http],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", told.stdout, re.M)
        if told.returncode != 0 or found is None:
            raise Bad(f"helm push: {told.stdout.strip()}")
        return found[1]


def publish(registry, folders, plain_http, key=None, transparency_log=False):
    releases = [Release(folder) for folder in folders]
    for what in ("version", "commit"):
        if len({getattr(r, what) for r in releases}) > 1:
            raise Bad(f"the releases differ in their {what}: "
                      f"{', '.join(getattr(r, what) for r in releases)}")
    for image in IMAGES:
        architectures = [release.manifest(image)[1] for release in releases]
        if len(set(architectures)) != len(architectures):
            raise Bad(f"{image} is there twice for one architecture: {', '.join(architectures)}")
    if key is not None and not pathlib.Path(COSIGN).exists():
        raise Bad("--key needs scripts/cosign.sh")
    publisher = Publisher(registry, plain_http, key, transparency_log)
    for image in IMAGES:
        publisher.sign(f"{registry}/{image}@{publisher.image(releases, image)}")
    publisher.sign(f"{registry}/charts/continuo@{publisher.chart(releases[0])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plain_http", action="store_true", help="the registry has no TLS")
    parser.add_argument("--key", help="signs what is published: cosign's private key, or its URI")
    parser.add_argument("--transparency_log", action="store_true", help="tells the public log of the signatures")
    parser.add_argument("registry")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    arguments = parser.parse_args()
    if arguments.transparency_log and arguments.key is None:
        parser.error("--transparency_log needs --key")
    try:
        publish(arguments.registry, arguments.folders, arguments.plain_http, arguments.key,
                arguments.transparency_log)
    except Bad as error:
        sys.exit(f"publish.py: {error}")


if __name__ == "__main__":
    main()
