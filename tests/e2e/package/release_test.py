#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/release.sh in two clones of this commit: all files of the release are there, hold what they should, and
are the same bytes in both. Tools and the crates of others are those of this checkout's build/."""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
COSIGN = ROOT / "build/cosign/bin/cosign"
SIGNED = ("SHA256SUMS", "provenance.intoto.json")


def run(*command, **keywords):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **keywords)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


def clone(folder):
    run("git", "clone", "-q", "--shared", ROOT, folder)
    (folder / "build").mkdir()
    for tools in ("venv", "tools", "npm", "oras", "cosign", "cargo"):
        if (ROOT / "build" / tools).exists():
            (folder / "build" / tools).symlink_to(ROOT / "build" / tools)
    return folder


class ReleaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="continuo-release-")
        cls.addClassCleanup(folder.cleanup)
        cls.clone = clone(pathlib.Path(folder.name, "clone"))
        cls.commit = run("git", "rev-parse", "HEAD", cwd=cls.clone).strip()
        cls.version = re.search(r"project\(continuo VERSION ([0-9.]+)",
                                (cls.clone / "CMakeLists.txt").read_text()).group(1)
        cls.out = pathlib.Path(folder.name, "out")
        cls.folder = pathlib.Path(folder.name)
        environment = {**os.environ, "COSIGN_PASSWORD": "secret"}
        options = []
        if COSIGN.exists():
            run(COSIGN, "generate-key-pair", cwd=cls.folder, env=environment)
            options = [f"--key={cls.folder}/cosign.key"]
        run(cls.clone / "scripts/release.sh", "--snapshot", "--no_images", *options, cls.out, env=environment)
        # What follows is of a release's files; their signatures differ each time.
        for name in SIGNED if options else ():
            (cls.out / f"{name}.sig").rename(cls.folder / f"{name}.sig")

    def file(self, pattern):
        found = list(self.out.glob(pattern))
        self.assertEqual(len(found), 1, f"{pattern}: {sorted(os.listdir(self.out))}")
        return found[0]

    def test_all_files_are_there_with_their_digests(self):
        names = {self.file(pattern).name for pattern in (
            f"continuo_{self.version}_*.deb", f"continuo-{self.version}-py3-none-manylinux*.whl",
            f"continuo-{self.version}.tgz")}
        self.assertEqual(set(os.listdir(self.out)), names | {"SHA256SUMS", "provenance.intoto.json"})
        sums = dict(reversed(line.split("  ")) for line in
                    (self.out / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums, {n: hashlib.sha256((self.out / n).read_bytes()).hexdigest()
                                for n in names})
        statement = json.loads((self.out / "provenance.intoto.json").read_text())
        self.assertEqual({s["name"]: s["digest"]["sha256"] for s in statement["subject"]}, sums)
        source = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        self.assertEqual(source["digest"]["gitCommit"], self.commit)

    @unittest.skipUnless(COSIGN.exists(), "scripts/cosign.sh has not run")
    def test_digests_and_statement_are_signed(self):
        def verify(name, file):
            run(COSIGN, "verify-blob", "--key", self.folder / "cosign.pub", "--insecure-ignore-tlog",
                "--signature", self.folder / f"{name}.sig", file)
        for name in SIGNED:
            verify(name, self.out / name)
            other = self.folder / "other"
            other.write_bytes((self.out / name).read_bytes() + b"\n")
            with self.assertRaises(RuntimeError):
                verify(name, other)

    def test_packages_bring_the_programs_and_the_chart(self):
        listing = run("dpkg-deb", "-c", self.file("*.deb"))
        wheel = zipfile.ZipFile(self.file("*.whl")).namelist()
        for program in ("continuo", "continuo-gateway", "continuo-worker"):
            self.assertRegex(listing, rf"\./usr/bin/{program}\n")
            self.assertIn(f"continuo/bin/{program}", wheel)
        with tarfile.open(self.file("*.tgz")) as chart:
            names = chart.getnames()
            self.assertIn(f"version: {self.version}",
                          chart.extractfile("continuo/Chart.yaml").read().decode().splitlines())
        self.assertIn("continuo/files/fetch_hub.sh", names)
        rendered = run(ROOT / "build/tools/bin/helm", "template", "r", self.file("*.tgz"), "--set",
                       "pools.m.model.path=/models/m")
        self.assertIn("kind: Deployment", rendered)

    def test_another_clone_makes_equal_bytes(self):
        other = clone(self.folder / "another-clone")
        out = self.folder / "another-out"
        run(other / "scripts/release.sh", "--snapshot", "--no_images", out)
        self.assertEqual(sorted(os.listdir(out)), sorted(os.listdir(self.out)))
        differ = [n for n in os.listdir(out) if (out / n).read_bytes() != (self.out / n).read_bytes()]
        self.assertEqual(differ, [])

    def test_what_is_no_release_is_refused(self):
        def refusal(*arguments):
            done = subprocess.run([str(a) for a in (self.clone / "scripts/release.sh", *arguments)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            return done.stdout
        self.assertIn("is not empty", refusal("--snapshot", self.out))
        self.assertIn(f"the commit has no tag v{self.version}", refusal(self.folder / "untagged"))
        self.assertIn("--arch is of images", refusal("--no_images", "--arch=another", self.folder / "no-images"))
        (self.clone / "stray").touch()
        self.addCleanup((self.clone / "stray").unlink)
        self.assertIn("the work tree has changes", refusal("--snapshot", self.folder / "changed"))


if __name__ == "__main__":
    unittest.main()
