# SPDX-License-Identifier: Apache-2.0
"""Workers whose KV cache is really filled to a share, by streams that hold long prompts."""
import json
import pathlib
import subprocess
import threading

import fleet
from fleet import pb

CONTEXT = 16384
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 1, "vocab_size": 300, "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}


def start_workers(folder, number):
    """Workers of a small random model, with a cache for one whole context each."""
    folder = pathlib.Path(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    subprocess.run([fleet.BIN / "continuo-make-model", f"--config={folder}/config.json",
                    f"--out={folder}/long", "--seed=1", "--dtype=fp32"], check=True,
                   stdout=subprocess.DEVNULL)
    return [fleet.start_worker(folder / "long", "--threads=1", f"--kv_blocks={CONTEXT // 16}")
            for _ in range(number)]


class Held:
    """Tokens that stay in a worker's cache until they are released. A stream holds its prompt there. The next one begins
    on the same blocks before that stream is cancelled, so that the share hardly changes."""
    READ_OF_A_STREAM = 100  # tokens until the next one begins
    MAX_OF_A_STREAM = 500  # so few that the answers of two fit beside a prompt of 90 % of the cache

    def __init__(self, worker, num_tokens):
        self.client = fleet.Client(worker.address)
        self.num_tokens = num_tokens
        self.released = threading.Event()
        self.error = None
        self.call = self._begin()
        self.renewer = threading.Thread(target=self._renew, daemon=True)
        self.renewer.start()

    def _begin(self):
        """A stream whose whole prompt is in the cache."""
        request = pb.GenerateRequest()
        request.token_ids.ids.extend(10 + i % 200 for i in range(self.num_tokens))
        request.stopping.max_tokens = self.MAX_OF_A_STREAM
        request.stopping.ignore_eos = True
        call = self.client.inference.Generate(request, timeout=300)
        while not next(call).deltas:
            pass
        return call

    def _renew(self):
        try:
            while not self.released.is_set():
                read = 0
                while read < self.READ_OF_A_STREAM:
                    read += sum(len(delta.token_ids) for delta in next(self.call).deltas)
                following = self._begin()
                self.call.cancel()
                self.call = following
        except (fleet.grpc.RpcError, StopIteration) as error:
            self.error = error

    def check(self):
        """Fails if a stream broke off. That the cache is full shows in what its worker tells of its load."""
        if self.error is not None:
            raise AssertionError(f"a stream that fills a cache ended: {self.error!r}")

    def release(self):
        self.released.set()
        self.renewer.join()
        self.call.cancel()
        self.check()
