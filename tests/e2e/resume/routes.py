# SPDX-License-Identifier: Apache-2.0
"""The HTTP routes that generate, a request of each, and how a plain client asks two gateways of one fleet."""
import http.client
import json
import pathlib
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "cli")]
import fleet  # noqa: E402

MODEL = "demo-model"
START_MS = time.time_ns() // 1_000_000
QUESTION = [{"role": "user", "content": "Tell me a story of Mira, who plays the violin."}]
# Sampled, so that nothing is equal by chance.
ROUTES = {
    "/v1/chat/completions": {"messages": QUESTION, "temperature": 1, "max_tokens": 60},
    "/v1/completions": {"prompt": "Mira lives", "temperature": 1, "max_tokens": 60},
    "/v1/responses": {"input": QUESTION, "temperature": 1, "max_output_tokens": 60},
    "/v1/messages": {"messages": QUESTION, "temperature": 1, "max_tokens": 60},
}


def make_key(chance):
    """An Idempotency-Key that keeps its reference time over midnight: a UUID of version 7 (RFC 9562)."""
    digits = f"{START_MS:012x}7{chance.getrandbits(12):03x}8{chance.getrandbits(60):015x}"
    return "-".join(digits[begin:end] for begin, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def code(self):
        """Returns the code of an error in OpenAI's form."""
        return json.loads(self.body)["error"]["code"]


def ask(connection, path, members, headers=None):
    """Sends a request, always in the same bytes, and reads the header of its answer."""
    connection.request("POST", path, json.dumps({"model": MODEL, **members}),
                       {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    # Python takes a header that was cut for a whole one.
    if response.status != 204 and response.length is None and not response.chunked:
        raise http.client.IncompleteRead(b"")
    return response


def post(address, path, members, headers=None):
    """One request, with whatever error the connection has."""
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        response = ask(connection, path, members, headers)
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


class FleetTest(unittest.TestCase):
    """Two gateways of one token in front of `NUM_WORKERS` workers that may be killed."""

    NUM_WORKERS = 2

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="continuo-resume-")
        cls.token = pathlib.Path(cls.folder.name) / "token"
        cls.token.write_text("the-token-of-this-fleet\n")
        cls.ports = [fleet.free_port() for _ in range(cls.NUM_WORKERS)]
        cls.workers = [cls.start_worker(port) for port in cls.ports]
        for worker in cls.workers:
            worker.wait_until_listening()
        cls.gateways = [cls.start_gateway() for _ in range(2)]
        cls.addresses = [gateway.http_address for gateway in cls.gateways]
        cls.wait_for_workers()

    @classmethod
    def start_gateway(cls, *flags):
        """One of the fleet, or with other flags a stranger."""
        return fleet.start_gateway([f"127.0.0.1:{port}" for port in cls.ports],
                                   *(flags or [f"--token_file={cls.token}"]))

    @staticmethod
    def start_worker(port, *flags):
        return fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB", *flags,
                                  port=port, wait=False)

    @classmethod
    def wait_for_workers(cls):
        for gateway in cls.gateways:
            fleet.Client(gateway.address).wait_for_model(num_workers=cls.NUM_WORKERS)

    @classmethod
    def kill_worker(cls, i):
        """Kills a worker and starts its successor, for which nobody waits."""
        cls.workers[i].kill()
        cls.workers[i] = cls.start_worker(cls.ports[i])

    @classmethod
    def kill_gateway(cls, i):
        """Kills a gateway and starts its successor, which listens elsewhere."""
        cls.gateways[i].kill()
        cls.gateways[i] = cls.start_gateway()
        cls.addresses[i] = cls.gateways[i].http_address

    @classmethod
    def tearDownClass(cls):
        for program in (*cls.gateways, *cls.workers):
            program.kill()
        cls.folder.cleanup()
