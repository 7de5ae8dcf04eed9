# SPDX-License-Identifier: Apache-2.0
"""A hub on a loopback port that behaves like Hugging Face's: a listing with digests, files behind redirects to a
storage of another origin, ranges, tokens, and whatever goes wrong."""
import hashlib
import http.server
import json
import ssl
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Server:
    """Answers by answer(request); knows what it was asked."""

    def __init__(self, tls=None):
        """`tls` is a certificate's file and its key's."""
        self.asked, self.lock = [], threading.Lock()
        self.was_asked = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                with server.lock:
                    server.asked.append((self.path, self.headers.get("authorization"), self.headers.get("range")))
                server.was_asked.set()
                server.answer(self)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.address = f"https://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def fail(request, code, name="", message="", **headers):
        request.send_response(code)
        for key, value in {"x-error-code": name, "x-error-message": message, "content-length": "0", **headers}.items():
            request.send_header(key, value)
        request.end_headers()

    def paths(self):
        return [path for path, _, _ in self.asked]


class Storage(Server):
    """Where large files are: /NAME, with ranges."""

    def __init__(self, files, tls=None):
        super().__init__(tls)
        self.files = files
        self.cut_after = None      # bytes of an answer until the connection is cut; None: never
        self.cuts = 10**9          # how many more answers are cut
        self.ignores_ranges = False
        self.hold = None           # an event that answers wait for
        self.more = b""            # behind each file

    def answer(self, request):
        send(self, request, self.files[urllib.parse.unquote(request.path[1:])])


def send(server, request, content):
    if server.hold is not None:
        server.hold.wait(60)
    content = content + server.more
    asked = request.headers.get("range")
    begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and not server.ignores_ranges else 0
    if begin and begin >= len(content):
        return server.fail(request, 416)
    request.send_response(206 if begin else 200)
    if begin:
        request.send_header("content-range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
    body = content[begin:]
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    if server.cut_after is not None and server.cuts > 0 and len(body) > server.cut_after:
        server.cuts -= 1
        request.wfile.write(body[:server.cut_after])
        request.close_connection = True
        return None
    return request.wfile.write(body)


class Hub(Storage):
    """One repository, org/tiny. Files of more than 64 KiB are in the storage."""

    def __init__(self, files, token=None, tls=None):
        super().__init__(files, tls)
        self.storage = Storage(files, tls)
        self.token, self.gated = token, False
        self.commit = COMMIT
        self.change = lambda listing: listing
        self.redirect = lambda path: f"{self.storage.address}/{urllib.parse.quote(path)}"

    def stop(self):
        self.storage.stop()
        super().stop()

    def is_large(self, path):
        return len(self.files[path]) > 1 << 16

    def listing(self):
        siblings = []
        for path, content in self.files.items():
            sibling = {"rfilename": path, "size": len(content), "blobId": git_id(content)}
            if self.is_large(path):
                sibling["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content),
                                  "pointerSize": 134}
            siblings.append(sibling)
        return {"_id": "x", "id": "org/tiny", "sha": self.commit, "siblings": siblings}

    def answer(self, request):
        token = request.headers.get("authorization")
        if self.gated and token == f"Bearer {self.token}":
            return self.fail(request, 403, "GatedRepo", "Access to model org/tiny is restricted")
        if self.token is not None and token != f"Bearer {self.token}":
            name = "GatedRepo" if self.gated else "RepoNotFound"
            return self.fail(request, 401, name, "Access to model org/tiny is restricted")
        path, _, query = request.path.partition("?")
        if path.startswith("/api/models/"):
            repository, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            if repository != "org/tiny":
                return self.fail(request, 404, "RepoNotFound", "Repository not found")
            if revision not in ("main", self.commit):
                return self.fail(request, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
            assert query == "blobs=true", query
            body = json.dumps(self.change(self.listing())).encode()
            request.send_response(200)
            request.send_header("content-length", str(len(body)))
            request.end_headers()
            return request.wfile.write(body)
        prefix = f"/org/tiny/resolve/{self.commit}/"
        name = urllib.parse.unquote(path.removeprefix(prefix))
        if not path.startswith(prefix) or name not in self.files:
            return self.fail(request, 404, "EntryNotFound", "Entry not found")
        if self.is_large(name):
            return self.fail(request, 302, location=self.redirect(name))
        return send(self, request, self.files[name])
