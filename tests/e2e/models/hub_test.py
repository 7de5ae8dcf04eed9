#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""continuo-worker --model=hf://…, against a hub of the test's own: what is fetched, what goes on after a cut, what is
refused, and who sees the token."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(E2E), str(E2E / "gguf"), str(pathlib.Path(__file__).resolve().parent)]
import certificates  # noqa: E402
import fleet  # noqa: E402
import gguf_models  # noqa: E402
import hub_server  # noqa: E402
from hub_server import COMMIT  # noqa: E402

FETCHING = "fetching the model"
MODEL = "hf://org/tiny"
WEIGHTS = "model.safetensors"


def demo_files():
    files = {p.name: p.read_bytes() for p in fleet.DEMO_MODEL.iterdir() if p.suffix in (".json", ".safetensors")}
    assert len(files[WEIGHTS]) > 1 << 20
    return files


class HubTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name) / "home"
        self.cache = self.home / "hub/models--org--tiny"
        self.hub = self.start(demo_files())

    def start(self, files, **options):
        hub = hub_server.Hub(files, **options)
        self.addCleanup(hub.stop)
        return hub

    def worker(self, model=MODEL, hub=None, **env):
        hub = hub or self.hub
        # No proxy stands between a test and its servers.
        clean = {name: "" for name in ("https_proxy", "http_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")}
        return fleet.Program("continuo-worker", f"--model={model}", "--listen=127.0.0.1:0",
                             "--metrics_listen=127.0.0.1:0", "--threads=1", "--kv_cache_memory=16MiB",
                             env={**clean, "HF_ENDPOINT": hub.address, "HF_HOME": str(self.home), "HF_TOKEN": "",
                                  "HF_HUB_CACHE": "", "HF_TOKEN_PATH": "", "HF_HUB_OFFLINE": "",
                                  "REQUESTS_CA_BUNDLE": "", "SSL_CERT_FILE": "", **env})

    def serves(self, *arguments, **env):
        """The log of a worker that loads."""
        worker = self.worker(*arguments, **env)
        worker.wait_for_log("listening")
        self.assertEqual(worker.terminate(), 0)
        return [json.loads(line) for line in worker.lines]

    def fails(self, *arguments, **env):
        """Why a worker ends."""
        worker = self.worker(*arguments, **env)
        reason = worker.wait_for_log("the worker ends")["reason"]
        self.assertEqual(worker.process.wait(20), 1)
        self.assertEqual([line for line in worker.lines if "secret" in line], [])
        return reason

    def asked_for_weights(self):
        """The ranges that the storage was asked for."""
        return [r for path, _, r in self.hub.storage.asked if path == f"/{WEIGHTS}"]

    def blobs(self):
        return sorted(p.name for p in (self.cache / "blobs").iterdir())

    def test_what_a_worker_reads_is_fetched_once(self):
        self.hub.files |= {"README.md": b"no", "pytorch_model.bin": b"no", "original/model.safetensors": b"no"}
        log = self.serves()
        loaded = next(line for line in log if line["message"] == "loaded")
        self.assertEqual(loaded["architecture"], "LlamaForCausalLM")
        loading = next(line for line in log if line["message"] == "loading")
        self.assertEqual(loading["model"], "org/tiny")
        whole = [line for line in log if line["message"] == FETCHING and line["bytes"] == line["of"]]
        self.assertIn(WEIGHTS, [line["file"] for line in whole])
        snapshot = self.cache / "snapshots" / COMMIT
        self.assertEqual({p.name for p in snapshot.iterdir()}, set(demo_files()))
        for path in snapshot.iterdir():
            self.assertTrue(path.is_symlink())
            self.assertEqual(path.read_bytes(), demo_files()[path.name])
        self.assertEqual((self.cache / "refs/main").read_text(), COMMIT)
        self.assertEqual(len(self.blobs()), len(demo_files()))
        self.hub.asked.clear()
        self.hub.storage.asked.clear()
        self.serves()
        self.assertEqual(self.hub.paths(), ["/api/models/org/tiny/revision/main?blobs=true"])
        self.assertEqual(self.hub.storage.asked, [])

    def test_a_connection_that_is_cut_goes_on_where_it_was(self):
        storage = self.hub.storage
        storage.cut_after = 300000
        self.serves()
        begins = [int(r.removeprefix("bytes=").removesuffix("-")) if r else 0 for r in self.asked_for_weights()]
        self.assertEqual(begins, list(range(0, len(demo_files()[WEIGHTS]), 300000)))

    def test_what_a_process_before_left_goes_on(self):
        digest = next(s for s in self.hub.listing()["siblings"] if s["rfilename"] == WEIGHTS)["lfs"]["sha256"]
        (self.cache / "blobs").mkdir(parents=True)
        part = self.cache / "blobs" / f"{digest}.incomplete"
        part.write_bytes(demo_files()[WEIGHTS][:1000])
        self.serves()
        self.assertEqual(self.asked_for_weights(), ["bytes=1000-"])
        self.assertFalse(part.exists())

    def test_a_storage_without_ranges_begins_anew(self):
        self.hub.storage.ignores_ranges = True
        self.hub.storage.cut_after, self.hub.storage.cuts = 500000, 2
        self.serves()
        self.assertEqual(self.asked_for_weights(), [None, "bytes=500000-", "bytes=500000-"])

    def test_wrong_bytes_are_refused_and_removed(self):
        def other_digest(listing):
            for sibling in listing["siblings"]:
                if sibling["rfilename"] == WEIGHTS:
                    sibling["lfs"]["sha256"] = "0" * 64
            return listing
        self.hub.change = other_digest
        reason = self.fails()
        self.assertIn("DATA_LOSS", reason)
        self.assertIn(WEIGHTS, reason)
        self.assertNotIn("0" * 64, self.blobs())
        self.assertEqual([b for b in self.blobs() if "incomplete" in b], [])
        self.assertFalse((self.cache / "refs/main").exists())
        self.hub.change = lambda listing: listing
        self.serves()

    def test_a_small_files_git_id_is_checked(self):
        def other_id(listing):
            for sibling in listing["siblings"]:
                if sibling["rfilename"] == "config.json":
                    sibling["blobId"] = "1" * 40
            return listing
        self.hub.change = other_id
        self.assertIn("git id", self.fails())

    def test_more_bytes_than_said_are_refused(self):
        self.hub.storage.more = b"x" * 100
        reason = self.fails()
        self.assertIn("bytes", reason)
        self.assertEqual([b for b in self.blobs() if "incomplete" in b], [])

    def test_the_token_is_the_hubs_alone(self):
        self.hub.token = "secret"
        self.serves(HF_TOKEN="secret")
        self.assertEqual({token for _, token, _ in self.hub.asked}, {"Bearer secret"})
        self.assertEqual({token for _, token, _ in self.hub.storage.asked}, {None})
        self.home.joinpath("token").write_text("secret\n")
        self.serves()

    def test_refusals_say_what_to_do(self):
        self.hub.token = "secret"
        self.assertIn("set HF_TOKEN", self.fails())
        self.assertIn("the token is wrong", self.fails(HF_TOKEN="secret2"))
        self.hub.gated = True
        reason = self.fails(HF_TOKEN="secret")
        self.assertIn("PERMISSION_DENIED", reason)
        self.assertIn("consent of its owners", reason)
        self.assertIn(f"{self.hub.address}/org/tiny", reason)
        self.assertIn("set HF_TOKEN", self.fails())
        self.hub.token, self.hub.gated = None, False
        self.assertIn("NOT_FOUND", self.fails("hf://org/other"))
        self.assertIn("no revision v9", self.fails("hf://org/tiny@v9"))

    def test_without_the_hub_what_was_fetched_is_served(self):
        reason = self.fails(HF_ENDPOINT="http://127.0.0.1:1")
        self.assertIn("UNAVAILABLE", reason)
        self.assertIn("is not in", reason)
        self.assertIn("HF_ENDPOINT", reason)
        self.serves()
        log = self.serves(HF_ENDPOINT="http://127.0.0.1:1")
        warning, = [line for line in log if line["severity"] == "WARNING"]
        self.assertIn("127.0.0.1:1", warning["reason"])
        self.hub.asked.clear()
        self.serves(HF_HUB_OFFLINE="1")
        self.serves(f"{MODEL}@{COMMIT}", HF_HUB_OFFLINE="1")
        self.assertEqual(self.hub.asked, [])

    def test_a_new_commit_is_taken_and_shares_what_stayed(self):
        self.serves()
        self.hub.commit = "f" * 40
        self.hub.files = self.hub.files | {"generation_config.json": b'{"temperature": 0.5}'}
        self.hub.storage.asked.clear()
        self.serves()
        self.assertEqual(self.hub.storage.asked, [])
        self.assertEqual((self.cache / "refs/main").read_text(), "f" * 40)
        self.assertTrue((self.cache / "snapshots" / ("f" * 40) / WEIGHTS).exists())
        self.assertTrue((self.cache / "snapshots" / COMMIT / WEIGHTS).exists())

    def test_hostile_listings_and_redirects(self):
        def evil(listing):
            listing["siblings"] += [{"rfilename": p, "size": 1, "blobId": "a" * 40}
                                    for p in ("../evil.json", "/tmp/evil.json", "a/../../evil.json")]
            return listing
        self.hub.change = evil
        self.serves()
        self.assertEqual(list(self.home.parent.rglob("*evil*")), [])
        self.hub.change = lambda listing: {"sha": "../../../x", "siblings": []}
        self.assertIn("no listing", self.fails())
        self.hub.change = lambda listing: listing
        self.home = self.home.parent / "second"
        self.hub.redirect = lambda path: f"/org/tiny/resolve/{COMMIT}/{path}"
        self.assertIn("redirects", self.fails())
        self.hub.redirect = lambda path: "file:///etc/passwd"
        self.assertIn("no address of http", self.fails())

    def test_two_workers_fetch_once(self):
        storage = self.hub.storage
        storage.hold = threading.Event()
        first = self.worker()
        self.assertTrue(storage.was_asked.wait(60))
        second = self.worker()
        second.wait_for_log("another process fetches a file of the model")
        storage.hold.set()
        for worker in (first, second):
            worker.wait_for_log("listening")
            self.assertEqual(worker.terminate(), 0)
        self.assertEqual(self.asked_for_weights(), [None])

    def test_one_gguf_file_of_several(self):
        with tempfile.TemporaryDirectory() as folder:
            _, path = gguf_models.write_model(folder, "llama")
            content = path.read_bytes()
        hub = self.start({"README.md": b"x", "tiny-Q4_0.gguf": content, "tiny-Q8_0.gguf": b"not read",
                          "sub dir/tiny-F16.gguf": b"not read"})
        self.assertIn("tiny-Q8_0.gguf", self.fails(MODEL, hub))
        self.serves(f"{MODEL}:q4_0", hub)
        self.assertEqual([p.name for p in (self.cache / "snapshots" / COMMIT).iterdir()], ["tiny-Q4_0.gguf"])
        self.serves(f"{MODEL}:tiny-Q4_0.gguf", hub, HF_HUB_OFFLINE="1")

    def test_a_hub_with_a_certificate_of_its_own(self):
        authority = certificates.Authority()
        hub = self.start(demo_files(), token="secret", tls=authority.issue("hub", 1))
        self.assertIn("UNAVAILABLE", self.fails(MODEL, hub, HF_TOKEN="secret"))
        self.serves(MODEL, hub, HF_TOKEN="secret", SSL_CERT_FILE=str(authority.ca))
        self.home = self.home.parent / "second"
        hub.redirect = lambda path: f"{self.hub.storage.address}/{path}"
        self.assertIn("from https to http", self.fails(MODEL, hub, HF_TOKEN="secret", SSL_CERT_FILE=str(authority.ca)))
        self.assertEqual(self.hub.storage.asked, [])

    def test_describe_asks_nobody(self):
        self.hub.asked.clear()
        worker = self.worker()
        worker.wait_for_log("listening")
        worker.terminate()
        self.hub.asked.clear()
        env = {**os.environ, "HF_ENDPOINT": self.hub.address, "HF_HOME": str(self.home), "HF_HUB_CACHE": ""}
        flags = ["--describe=json", f"--model={MODEL}"]
        done = subprocess.run([fleet.BIN / "continuo-worker", *flags], env=env, capture_output=True, text=True)
        self.assertEqual((done.returncode, json.loads(done.stdout)["name"]), (0, "org/tiny"))
        env["HF_HOME"] = str(self.home / "none")
        done = subprocess.run([fleet.BIN / "continuo-worker", *flags], env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a worker that starts with it fetches it", done.stdout)
        self.assertEqual(self.hub.asked, [])


if __name__ == "__main__":
    unittest.main()
