#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy ids of two trained models equal the float64 goldens, through gateway and worker.

Alone and 32 at once, prefix cache on and off, chunks of 1, 7 and 512, a KV pool so small that it
preempts, tensor parallel 1, 2 and 4.
"""
import concurrent.futures
import itertools
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

MODELS = ["stories260K", "babyllama105"]


def request_of(case, bypass, priority):
    request = pb.GenerateRequest()
    request.token_ids.ids.extend(case["prompt_ids"])
    request.sampling.temperature = 0
    request.sampling.repetition_penalty = 1
    request.stopping.max_tokens = len(case["greedy_ids"])
    request.cache.bypass = bypass
    request.priority = priority
    return request


def preemptions_of(worker):
    return sum(value for key, value in fleet.scrape(worker.metrics_address).items()
               if key.startswith("continuo_preemptions_total"))


class GoldensTest(unittest.TestCase):
    def check(self, model, *flags, at_once=32, needs_preemptions=False):
        directory = fleet.SHARED / "data/models" / model / "hf"
        goldens = fleet.SHARED / "data/goldens" / f"{model}.json"
        if not directory.exists() or not goldens.exists():
            self.skipTest(f"shared data not found: {directory}")
        cases = json.loads(goldens.read_text())["cases"]
        worker = fleet.start_worker(directory, "--weights=fp32", *flags)
        gateway = fleet.start_gateway([worker])
        try:
            client = fleet.Client(gateway.address)
            client.wait_for_model()

            def run(case, bypass, priority=0):
                got = client.generate(request_of(case, bypass, priority)).ids.get(0, [])
                self.assertEqual(got, case["greedy_ids"],
                                 f"{model} {flags} {case['prompt']!r} bypass={bypass}")

            if at_once == 1:
                for case, bypass in itertools.product(cases, (False, True)):
                    run(case, bypass)
            else:
                work = list(itertools.islice(itertools.cycle(
                    itertools.product(cases, (False, True))), max(at_once, 2 * len(cases))))
                # A request that arrives later and ranks higher takes the room of a running one.
                ranks = [i * 7 % 100 if needs_preemptions else 0 for i in range(len(work))]
                with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                    # If all arrive before the first one runs, nothing is preempted.
                    for _ in range(10 if needs_preemptions else 1):
                        for done in [pool.submit(run, *w, rank) for w, rank in zip(work, ranks)]:
                            done.result()
                        if preemptions_of(worker) > 0:
                            break
            if needs_preemptions:
                self.assertGreater(preemptions_of(worker), 0)
        finally:
            gateway.kill()
            worker.kill()


def add(name, *arguments, **keywords):
    for model in MODELS:
        def test(self, model=model):
            self.check(model, *arguments, **keywords)
        setattr(GoldensTest, f"test_{model}_{name}", test)


add("alone", at_once=1)
add("32_at_once")
for chunk in (1, 7, 512):
    add(f"chunk_{chunk}", f"--max_prefill_chunk={chunk}")
for size in (2, 4):
    add(f"tensor_parallel_{size}", f"--tensor_parallel={size}")
# Room for the longest sequence (--max_context_tokens) and little more.
add("pool_that_preempts", "--max_context_tokens=256", "--kv_blocks=36", "--block_size=8",
    needs_preemptions=True)

if __name__ == "__main__":
    unittest.main(verbosity=2)
