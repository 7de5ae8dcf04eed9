#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A request whose worker's process dies three times in a row without a new token is taken for the
cause and fails with POISON; one whose worker died twice, or made progress in between, goes on."""
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import grpc, pb, worker_pb  # noqa: E402
from lifecycle_test import reason_of  # noqa: E402

# With one row a step, prefill takes as many steps as the prompt has tokens, so that a worker is
# surely killed before the first token.
FLAGS = ["--threads=1", "--max_prefill_chunk=1", "--isa=scalar"]
PROMPT_TOKENS = 800


class PoisonTest(unittest.TestCase):
    def setUp(self):
        names = [f"worker-{i}" for i in range(4)]
        self.workers = {name: fleet.start_worker(fleet.DEMO_MODEL, f"--worker_name={name}", *FLAGS)
                        for name in names}
        self.gateway = fleet.start_gateway(list(self.workers.values()))
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(len(names))
        self.request = pb.GenerateRequest()
        self.request.token_ids.ids.extend(10 + i % 300 for i in range(PROMPT_TOKENS))
        self.request.sampling.seed = 5
        self.request.stopping.max_tokens = 30
        self.request.stopping.ignore_eos = True
        self.request.cache.bypass = True  # so that every worker reads all of it

    def tearDown(self):
        for program in [*self.workers.values(), self.gateway]:
            program.kill()

    def run_killing(self, deaths_before_token, deaths_after_token=0):
        """Each worker that accepts is killed at once, so many times; then so many times again,
        after tokens came."""
        left = [deaths_before_token, deaths_after_token]
        self.num_killed = num_tokens = 0
        worker = None
        responses = []
        for response in self.client.inference.Generate(self.request, timeout=120):
            responses.append(response)
            num_tokens += sum(len(d.token_ids) for d in response.deltas)
            if response.HasField("accepted"):
                worker = response.accepted.worker
            phase = 1 if num_tokens > 0 else 0
            if worker and left[phase] > 0:
                left[phase] -= 1
                self.workers[worker].kill()
                self.num_killed += 1
                worker = None
        return fleet.Answer(responses)

    def collect_killing(self, deaths):
        """Does the same with output.collect: a client sees nothing before the end, so each worker's
        steps show that it has begun."""
        self.request.output.collect = True
        self.request.request_id = "collected"
        self.num_killed = 0
        lock = threading.Lock()

        def watch(program):
            watch_request = worker_pb.WatchStepsRequest()
            watch_request.min_interval.FromMilliseconds(10)
            worker = fleet.Client(program.address).worker
            try:
                for response in worker.WatchSteps(watch_request):
                    steps = [s for step in response.steps for s in step.sequences]
                    # After this many steps the gateway knows of the first, also on a busy machine.
                    if not any(s.request_id == "collected" and s.cached_tokens >= 200 for s in steps):
                        continue
                    with lock:
                        if self.num_killed < deaths:
                            self.num_killed += 1
                            program.kill()
            except grpc.RpcError:
                pass  # it was killed

        for program in self.workers.values():
            threading.Thread(target=watch, args=[program], daemon=True).start()
        return self.client.generate(self.request)

    def test_third_death_in_a_row_is_poison(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.run_killing(deaths_before_token=4)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INTERNAL)
        self.assertEqual(reason_of(raised.exception), "POISON")
        self.assertEqual(self.num_killed, 3)
        # The remaining worker serves others.
        other = pb.GenerateRequest(text="Mira lives in Oslo.")
        other.stopping.max_tokens = 5
        self.assertIsNotNone(self.client.generate(other).summary)

    def test_two_deaths_in_a_row_are_survived(self):
        undisturbed = self.client.generate(self.request).comparable()
        answer = self.run_killing(deaths_before_token=2)
        self.assertEqual(self.num_killed, 2)
        self.assertEqual(answer.comparable(), undisturbed)

    def test_third_death_in_a_row_is_poison_with_collect_too(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.collect_killing(deaths=4)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INTERNAL)
        self.assertEqual(reason_of(raised.exception), "POISON")
        self.assertEqual(self.num_killed, 3)

    def test_two_deaths_in_a_row_are_survived_with_collect_too(self):
        undisturbed = self.client.generate(self.request).comparable()
        answer = self.collect_killing(deaths=2)
        self.assertEqual(self.num_killed, 2)
        self.assertEqual(len(answer.responses), 1)
        self.assertEqual(answer.comparable(), undisturbed)

    def test_deaths_with_progress_between_them_do_not_add_up(self):
        undisturbed = self.client.generate(self.request).comparable()
        answer = self.run_killing(deaths_before_token=2, deaths_after_token=1)
        self.assertEqual(self.num_killed, 3)
        self.assertEqual(answer.comparable(), undisturbed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
