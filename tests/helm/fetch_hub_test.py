# SPDX-License-Identifier: Apache-2.0
"""helm/continuo/files/fetch_hub.sh fetches a model from a hub: only what a worker reads, whole, of one
commit and as the hub's digests say, again only what is missing, by one pod at a time over several
connections, and the token to nobody but the hub."""
import collections
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from fetch_script import FetchScriptTest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = bytes(range(256)) * 4096
PIECE = 1 << 20  # the smallest
LARGE = b"".join(bytes([i]) * PIECE for i in range(9)) + b"end"
FILES = {"config.json": b"{}", "tokenizer.json": b"[1]", "model.safetensors": WEIGHTS,
         "pytorch_model.bin": b"not read", "original/params.json": b"{}", "../evil.json": b"{}",
         ".hidden.json": b"{}"}


class Hub:
    """A hub, or where it keeps large files."""

    def __init__(self, files, storage=None):
        self.files, self.storage, self.commit = dict(files), storage, COMMIT
        self.asked, self.tokens, self.cut_after = [], [], None
        self.ranges = collections.Counter()  # of all files
        self.knows_ranges, self.tells_git_ids = True, False
        self.refused_range = None
        self.before_range = lambda text: None
        self.digest_of = lambda content: hashlib.sha256(content).hexdigest()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(self)
        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                if not isinstance(sys.exc_info()[1], ConnectionError):  # as of a client that was killed
                    super().handle_error(request, client_address)
        self.server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request):
        self.asked.append(request.path)
        self.tokens.append(request.headers.get("authorization"))
        if request.path == "/api/models/a/b/revision/main?blobs=true":
            siblings = [{"rfilename": n, "size": len(c), **(
                {"blobId": hashlib.sha1(b"blob %d\0" % len(c) + c).hexdigest()}
                if self.tells_git_ids else {}), **(
                {"lfs": {"sha256": self.digest_of(c), "size": len(c)}}
                if n.endswith("safetensors") else {})} for n, c in self.files.items()]
            return self.send(request, json.dumps({"_id": "x", "id": "a/b", "sha": self.commit,
                                                  "siblings": siblings}, indent=1).encode())
        name = request.path.rsplit("/", 1)[-1]
        if name not in self.files:
            return request.send_error(404)
        if self.storage is not None and name.endswith("safetensors"):
            request.send_response(302)
            request.send_header("location", f"{self.storage.address}/{name}")
            told = b"Found. Redirecting."
            request.send_header("content-length", str(len(told)))
            request.end_headers()
            return request.wfile.write(told)
        return self.send(request, self.files[name])

    def send(self, request, content):
        asked = request.headers.get("range") if self.knows_ranges else None
        begin, end = 0, len(content)
        if asked is not None:
            self.ranges[asked] += 1
            self.before_range(asked)
            if asked == self.refused_range:
                return request.send_error(403)
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin = int(first)
            end = min(int(last) + 1, end) if last else end
        if begin >= len(content) and asked is not None:
            return request.send_error(416)
        request.send_response(200 if asked is None else 206)
        if asked is not None:
            request.send_header("content-range", f"bytes {begin}-{end - 1}/{len(content)}")
        content = content[begin:end]
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        if self.cut_after is not None and len(content) > self.cut_after:
            request.wfile.write(content[:self.cut_after])
            request.close_connection = True
            return None
        return request.wfile.write(content)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class FetchTest(FetchScriptTest):
    values = "pools.m.model.hub.repository=a/b"

    def setUp(self):
        super().setUp()
        self.storage = Hub(FILES)
        self.hub = Hub(FILES, self.storage)

    def tearDown(self):
        self.hub.stop()
        self.storage.stop()

    def fetch(self, revision="main", **more):
        process = self.start(revision, **more)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, revision="main", **more):
        return super().start(HUB=self.hub.address, REVISION=revision, **more)

    def has_large_weights(self):
        for hub in (self.hub, self.storage):
            hub.files["model.safetensors"] = LARGE

    def pieces(self):
        """How often each piece of the large weights was asked for."""
        ends = [*range(PIECE, len(LARGE), PIECE), len(LARGE)]
        return [self.storage.ranges[f"bytes={begin}-{end - 1}"]
                for begin, end in zip([0, *ends], ends)]

    def there(self):
        return sorted(p.name for p in self.target.iterdir())

    def test_what_a_worker_reads_is_there_and_nothing_else(self):
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.there(), [".complete", "config.json", "model.safetensors",
                                        "tokenizer.json"])
        self.assertEqual((self.target / "model.safetensors").read_bytes(), WEIGHTS)
        self.assertEqual([p.name for p in self.target.parent.rglob("evil*")], [])
        # Every file is of the one commit in the listing.
        self.assertTrue(all(COMMIT in p for p in self.hub.asked[1:]))

    def test_a_branch_that_moves_on_leaves_no_file_of_before(self):
        self.fetch()
        before = self.target.resolve()
        self.hub.commit = COMMIT[::-1]
        del self.hub.files["model.safetensors"]
        shards = {f"model-0000{i}-of-00002.safetensors": WEIGHTS[i:] for i in (1, 2)}
        self.hub.files |= shards
        self.storage.files |= shards
        # A worker's container that starts in between finds all its files.
        self.storage.cut_after = 1000
        self.assertNotEqual(self.fetch().returncode, 0)
        self.assertEqual(self.there(), [".complete", "config.json", "model.safetensors",
                                        "tokenizer.json"])
        self.storage.cut_after = None
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.there(), [".complete", "config.json", *sorted(shards),
                                        "tokenizer.json"])
        for name, content in shards.items():
            self.assertEqual((self.target / name).read_bytes(), content)
        # A process that still reads the previous files may go on.
        self.assertEqual((before / "model.safetensors").read_bytes(), WEIGHTS)

    def test_weights_that_a_commit_leaves_as_they_are_are_not_fetched_again(self):
        self.fetch()
        self.hub.commit = COMMIT[::-1]
        self.hub.files["config.json"] = b'{"a": 1}'
        before = len(self.storage.asked)
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "config.json").read_bytes(), b'{"a": 1}')
        self.assertEqual((self.target / "model.safetensors").read_bytes(), WEIGHTS)
        self.assertEqual(len(self.storage.asked), before)

    def test_a_commit_of_before_is_shown_again(self):
        self.fetch()
        before = self.target.resolve()
        self.hub.commit = COMMIT[::-1]
        self.fetch()
        self.assertNotEqual(self.target.resolve(), before)
        self.hub.commit = COMMIT
        self.fetch()
        self.assertEqual(self.target.resolve(), before)

    def test_a_model_that_is_there_is_not_fetched_again(self):
        self.fetch()
        before = len(self.hub.asked)
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.hub.asked), before + 1)

    def test_what_was_cut_off_goes_on(self):
        self.storage.cut_after = len(WEIGHTS) // 2
        done = self.fetch()
        if done.returncode != 0:  # curl may have gone on by itself
            self.assertFalse(self.target.exists())
            self.storage.cut_after = None
            done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), WEIGHTS)

    def test_a_whole_part_that_has_no_name_yet_is_no_dead_end(self):
        folder = self.target.with_name(f"{self.target.name}@{COMMIT}")
        folder.mkdir(parents=True)
        (folder / ".model.safetensors.part").write_bytes(WEIGHTS)
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), WEIGHTS)

    def test_large_files_come_in_pieces_over_several_connections(self):
        self.has_large_weights()
        together = threading.Barrier(4, timeout=60)

        def before(text):
            if text in [f"bytes={PIECE * i}-{PIECE * (i + 1) - 1}" for i in range(4)]:
                together.wait()
        self.storage.before_range = before
        done = self.fetch(PIECE=str(PIECE), STREAMS="4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)
        self.assertEqual(self.pieces(), [1] * 10)
        self.assertEqual(self.there(), [".complete", "config.json", "model.safetensors",
                                        "tokenizer.json"])

    def test_programs_are_started_for_pieces_not_for_each_stream_and_piece(self):
        """Every stream looks at every piece: 8 by 10 here, 64 by 1,000 for 128 GB."""
        self.has_large_weights()
        counted = self.folder / "bin"
        counted.mkdir()
        (counted / "mkdir").write_text(f'#!/bin/sh\necho >>{self.folder}/made\nexec {shutil.which("mkdir")} "$@"\n')
        (counted / "mkdir").chmod(0o755)
        done = self.fetch(PIECE=str(PIECE), STREAMS="8", PATH=f"{counted}:{self.path}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)
        # Folders of the model and of the state, and one for each file.
        self.assertLess(len((self.folder / "made").read_text().splitlines()), 20)

    def test_pods_that_come_together_fetch_everything_once(self):
        self.has_large_weights()
        processes = [self.start(PIECE=str(PIECE)) for _ in range(3)]
        for process in processes:
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, errors)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)
        self.assertEqual(self.pieces(), [1] * 10)
        self.assertEqual(collections.Counter(self.hub.asked)[f"/a/b/resolve/{COMMIT}/config.json"], 1)

    def test_a_pod_goes_on_where_one_was_killed(self):
        self.has_large_weights()
        held, go_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)
        never = f"bytes={PIECE * 5}-{PIECE * 6 - 1}"

        def before(text):
            if text == never:
                held.release()
                go_on.wait(60)
        self.storage.before_range = before
        # One connection takes the pieces in their order.
        first = self.start(PIECE=str(PIECE), STREAMS="1")
        self.assertTrue(held.acquire(timeout=60))
        second = self.start(PIECE=str(PIECE), STREAMS="2")
        self.has_to_wait(second)
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        self.storage.before_range = lambda text: None
        go_on.set()
        _, errors = second.communicate(timeout=120)
        self.assertEqual(second.returncode, 0, errors)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)
        self.assertEqual(self.pieces(), [1] * 5 + [2] + [1] * 4)

    def test_a_pod_that_waits_ends_when_it_is_told_to(self):
        self.has_large_weights()
        held, go_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)

        def before(_):
            held.release()
            go_on.wait(60)
        self.storage.before_range = before
        self.start(PIECE=str(PIECE), STREAMS="1")
        self.assertTrue(held.acquire(timeout=60))
        second = self.start(PIECE=str(PIECE), STREAMS="1")
        self.ends_as_it_is_told_to(second)

    def test_a_piece_goes_on_where_its_connection_broke(self):
        self.has_large_weights()
        self.storage.cut_after = 3 * PIECE + 1000
        done = self.fetch(PIECE=str(4 * PIECE), STREAMS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)
        self.assertEqual(self.storage.ranges[f"bytes=0-{4 * PIECE - 1}"], 1)
        self.assertEqual(self.storage.ranges[f"bytes={3 * PIECE}-{4 * PIECE - 1}"], 1)

    def test_a_hub_that_knows_no_ranges_is_asked_for_whole_files(self):
        self.has_large_weights()
        self.hub.knows_ranges = self.storage.knows_ranges = False
        done = self.fetch(PIECE=str(PIECE))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)

    def test_a_hub_that_refuses_the_probe_is_not_asked_for_whole_files(self):
        self.has_large_weights()
        self.storage.refused_range = "bytes=0-0"
        done = self.fetch(PIECE=str(PIECE))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("403", done.stderr)
        self.assertEqual(self.storage.asked, ["/model.safetensors"])
        self.storage.refused_range = None
        done = self.fetch(PIECE=str(PIECE))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.pieces(), [1] * 10)

    def test_pieces_that_are_not_what_the_hub_says_are_refused_and_fetched_again(self):
        self.has_large_weights()
        self.storage.files["model.safetensors"] = LARGE[::-1]
        done = self.fetch(PIECE=str(PIECE))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("model.safetensors is not what", done.stderr)
        self.assertFalse(self.target.exists())
        self.storage.files["model.safetensors"] = LARGE
        done = self.fetch(PIECE=str(PIECE))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.target / "model.safetensors").read_bytes(), LARGE)

    def test_small_files_are_checked_by_the_ids_that_git_has_for_them(self):
        self.hub.tells_git_ids = True
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.hub.commit = COMMIT[::-1]
        before = list(self.hub.asked)
        done = self.fetch()  # all files are those of the commit before
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.hub.asked), len(before) + 1)
        self.hub.commit, told = COMMIT[1:] + "0", dict(self.hub.files)
        self.hub.files["config.json"] = b"{1}"
        answer = self.hub.answer

        def other(request):  # than the listing tells
            if request.path.endswith("config.json"):
                return self.hub.send(request, told["config.json"] + b" ")
            return answer(request)
        self.hub.answer = other
        done = self.fetch()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("config.json is not what", done.stderr)

    def test_a_file_that_is_not_what_the_hub_says_is_refused(self):
        self.hub.digest_of = lambda content: "0" * 64
        done = self.fetch()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("model.safetensors is not what", done.stderr)
        self.assertFalse(self.target.exists())
        self.assertEqual([], list(self.target.parent.rglob("model.safetensors")))

    def test_the_token_goes_to_the_hub_only_and_is_no_argument(self):
        done = self.fetch(HUB_TOKEN="hf_secret")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(self.hub.tokens), {"Bearer hf_secret"})
        self.assertEqual(self.storage.tokens, [None])
        self.assertNotIn("hf_secret", done.stdout + done.stderr)

    def test_a_revision_that_is_not_there_is_told(self):
        done = self.fetch(revision="nope")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("did not tell a commit of a/b at nope", done.stderr)

    def test_a_repository_without_a_model_is_told(self):
        del self.hub.files["config.json"]
        done = self.fetch()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a/b has no config.json", done.stderr)


@unittest.skipUnless(shutil.which("busybox"), "busybox is not installed")
class FetchWithBusyboxTest(FetchTest):
    """Runs the tests with the tools of the chart's default image: busybox and curl."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        busybox = shutil.which("busybox")
        for tool in subprocess.check_output([busybox, "--list"], text=True).split():
            os.symlink(busybox, os.path.join(folder.name, tool))
        os.symlink(shutil.which("curl"), os.path.join(folder.name, "curl"))
        if not os.path.exists(os.path.join(folder.name, "flock")):  # Alpine's busybox has it, Debian's not
            os.symlink(shutil.which("flock"), os.path.join(folder.name, "flock"))
        cls.path = folder.name


if __name__ == "__main__":
    unittest.main()
