#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A generation that is cut anywhere goes on in another process with the same tokens and
log-probabilities, bit by bit, in every format, whatever else the two workers do differently.

    exact_migrations_test.py [--migrations=N] [--seed=N]    N cuts in each format
"""
import argparse
import concurrent.futures
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from models import state_models  # noqa: E402
from traffic import NUM_KINDS, make_request  # noqa: E402

FORMATS = {
    "fp32": ("--weights=fp32",),
    "bf16": ("--weights=bf16",),
    "int8": ("--weights=int8",),
    "int4": ("--weights=int4",),
    "bf16, int8 KV": ("--weights=bf16", "--kv_dtype=int8"),
    "int8, int8 KV": ("--weights=int8", "--kv_dtype=int8"),
}
# The second worker differs in all that no token may depend on; its cache holds little more than one
# sequence of the whole context.
FIRST = ("--threads=1", "--kv_blocks=512", "--speculation=off")
SECOND = ("--threads=2", "--tensor_parallel=2", "--kv_blocks=1100", "--block_size=1",
          "--max_batch_tokens=50", "--max_prefill_chunk=7", "--speculation=lookup")
# The second worker can keep recurrent states for three sequences at a time.
FEW_STATES = ("--state_slots=7",)
OPTIONS = argparse.Namespace(migrations=10, seed=1)


def draw_request(rng, number):
    """One of the kinds that chaos tests send, or a prompt that goes beyond one KV chunk."""
    request = make_request(rng.randrange(NUM_KINDS), chat=False)
    request.output.collect = False
    if rng.random() < 0.3:
        request.token_ids.ids.extend(rng.randrange(10, 2000) for _ in range(rng.randrange(90, 200)))
    request.request_id = f"migration-{number}"
    request.sampling.seed = rng.randrange(1 << 32)
    request.output.logprobs = rng.randrange(4)
    return request


class ExactMigrationsTest(unittest.TestCase):
    def migrate(self, clients, request, number):
        """Cuts the answer of the first worker at a random place, and goes on with the second."""
        whole = clients[0].generate(request)
        responses = whole.responses
        cut = random.Random(OPTIONS.seed * 1000 + number).randrange(len(responses))
        rest = pb.GenerateRequest()
        rest.CopyFrom(request)
        if cut == 0:
            rest.sampling.seed = whole.accepted[-1].seed
        fleet.continue_after(rest, [without_text(r) for r in responses[:cut]])
        responses = responses[:cut] + clients[1].generate(rest).responses
        return whole, fleet.Answer(responses)

    def test_goes_on_with_the_same_bits(self):
        for name, flags in FORMATS.items():
            with self.subTest(format=name):
                self.check(fleet.DEMO_MODEL, flags)

    def test_models_with_recurrent_states_do_so_too(self):
        with tempfile.TemporaryDirectory() as folder:
            for family in state_models.FAMILIES:
                model = state_models.make(family, pathlib.Path(folder))
                for name in ("fp32", "int8"):
                    with self.subTest(family=family, format=name):
                        self.check(model, FORMATS[name], second=FEW_STATES)

    def check(self, model, flags, second=()):
        workers = [fleet.start_worker(model, *flags, *own) for own in (FIRST, SECOND + second)]
        try:
            clients = [fleet.Client(worker.address) for worker in workers]
            for client in clients:
                client.wait_for_model()
            rng = random.Random(OPTIONS.seed)
            requests = [draw_request(rng, i) for i in range(OPTIONS.migrations)]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda i: self.migrate(clients, requests[i], i),
                                        range(len(requests))))
            for request, (whole, joined) in zip(requests, answers):
                self.assertFalse(joined.accepted[-1].inexact)
                self.assertEqual(joined.accepted[-1].fingerprint, whole.accepted[-1].fingerprint)
                self.assertEqual(joined.comparable(), whole.comparable(), request)
        finally:
            for worker in workers:
                worker.kill()


def without_text(response):
    """The response as the relay keeps it."""
    kept = pb.GenerateResponse()
    kept.CopyFrom(response)
    for delta in kept.deltas:
        delta.ClearField("text")
        delta.ClearField("logprobs")
    return kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--migrations", type=int, default=OPTIONS.migrations)
    parser.add_argument("--seed", type=int, default=OPTIONS.seed)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
