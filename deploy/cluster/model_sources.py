#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hub and an object store that have one model, for the chart's init containers in the cluster.

    model_sources.py FOLDER --token=TOKEN [--hub_port=8000] [--s3_port=9000]

The hub tells of FOLDER as demo/model at main, to who shows the token; the store (moto) has it as
s3://models/demo. Says `ready` when both serve.
"""
import argparse
import hashlib
import http.server
import json
import pathlib
import threading

import boto3
from moto.server import ThreadedMotoServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def handler(folder, token):
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    listing = json.dumps({"id": "demo/model", "sha": COMMIT, "siblings": [
        {"rfilename": name, "size": len(content),
         "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}}
        for name, content in files.items()]}).encode()
    pages = {"/api/models/demo/model/revision/main?blobs=true": listing,
             **{f"/demo/model/resolve/{COMMIT}/{name}": content for name, content in files.items()}}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.headers.get("authorization") != f"Bearer {token}":
                self.send_error(401)
            elif self.path not in pages:
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("content-length", str(len(pages[self.path])))
                self.end_headers()
                self.wfile.write(pages[self.path])
    return Handler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--token", required=True)
    parser.add_argument("--hub_port", type=int, default=8000)
    parser.add_argument("--s3_port", type=int, default=9000)
    options = parser.parse_args()
    ThreadedMotoServer(ip_address="0.0.0.0", port=options.s3_port, verbose=False).start()
    store = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{options.s3_port}", region_name="us-east-1",
                         aws_access_key_id="test", aws_secret_access_key="test")
    store.create_bucket(Bucket="models")
    for path in options.folder.iterdir():
        store.upload_file(str(path), "models", f"demo/{path.name}")
    hub = http.server.ThreadingHTTPServer(("0.0.0.0", options.hub_port), handler(options.folder, options.token))
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


main()
