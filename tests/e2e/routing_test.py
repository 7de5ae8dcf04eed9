#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two real workers, one really filled to 90 % of its KV cache without a queue: by what WatchLoad
reports, it receives fewer requests than the one at 10 %."""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb, worker_pb  # noqa: E402

CONTEXT = 16384
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 1, "vocab_size": 300, "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}


class RoutingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        config = pathlib.Path(self.folder.name) / "config.json"
        config.write_text(json.dumps(CONFIG))
        model = pathlib.Path(self.folder.name) / "long"
        subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={model}",
                        "--seed=1", "--dtype=fp32"], check=True, stdout=subprocess.DEVNULL)
        self.workers = [fleet.start_worker(model, "--threads=1", f"--kv_blocks={CONTEXT // 16}")
                        for _ in range(2)]
        self.gateway = fleet.start_gateway(self.workers)
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(2)

    def tearDown(self):
        for program in [self.gateway, *self.workers]:
            program.kill()
        self.folder.cleanup()

    def hold(self, worker, num_tokens):
        """A stream that keeps at least that many tokens in the worker's cache; its call."""
        request = pb.GenerateRequest()
        request.token_ids.ids.extend(10 + i % 200 for i in range(num_tokens))
        request.stopping.max_tokens = min(CONTEXT - num_tokens, 2400)
        request.stopping.ignore_eos = True
        call = fleet.Client(worker.address).inference.Generate(request, timeout=300)
        while not next(call).deltas:
            pass  # until the whole prompt is in the cache
        reader = threading.Thread(target=lambda: self.swallow(call), daemon=True)
        reader.start()
        return call, reader

    @staticmethod
    def swallow(call):
        try:
            for _ in call:
                pass
        except fleet.grpc.RpcError:
            pass  # cancelled at the end

    def load_without_queue(self, worker):
        """The worker's report while no request waits; a report may be from just before the last
        request was admitted, so the first that shows no queue counts. A lasting queue fails."""
        call = fleet.Client(worker.address).worker.WatchLoad(worker_pb.WatchLoadRequest(),
                                                             timeout=30)
        load = next(load for load in call if load.waiting_requests == 0)
        call.cancel()
        return load

    def served(self, worker):
        return sum(v for k, v in fleet.scrape(worker.metrics_address).items()
                   if k.startswith("continuo_requests_total"))

    def test_fuller_worker_receives_fewer(self):
        full, light = self.workers
        before = [self.served(w) for w in self.workers]
        calls = [self.hold(full, CONTEXT * 9 // 10), self.hold(light, CONTEXT // 10)]
        num_requests = 0
        while num_requests < 400:
            loads = [self.load_without_queue(w) for w in self.workers]
            if not all(reader.is_alive() for _, reader in calls):
                break
            self.assertGreaterEqual(loads[0].used_kv_blocks, 0.88 * loads[0].total_kv_blocks)
            self.assertLess(loads[1].used_kv_blocks, 0.3 * loads[1].total_kv_blocks)
            for _ in range(10):
                request = pb.GenerateRequest()
                request.token_ids.ids.extend([10 + num_requests % 200, 30, 40])
                request.stopping.max_tokens = 1
                self.client.generate(request)
                num_requests += 1
        for call, reader in calls:
            call.cancel()
            reader.join()
        self.assertGreaterEqual(num_requests, 30)
        received = [self.served(w) - b for w, b in zip(self.workers, before)]
        print(f"{num_requests} requests: {received[0]:.0f} at 90 %, {received[1]:.0f} at 10 %")
        self.assertLess(received[0] * 2, received[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
