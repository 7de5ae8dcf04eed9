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


def hold(worker, num_tokens):
    """A stream that keeps at least that many tokens in the worker's cache; its call."""
    request = pb.GenerateRequest()
    request.token_ids.ids.extend(10 + i % 200 for i in range(num_tokens))
    request.stopping.max_tokens = min(CONTEXT - num_tokens, 2400)
    request.stopping.ignore_eos = True
    call = fleet.Client(worker.address).inference.Generate(request, timeout=300)
    while not next(call).deltas:
        pass  # until the whole prompt is in the cache
    reader = threading.Thread(target=lambda: _swallow(call), daemon=True)
    reader.start()
    return call, reader


def _swallow(call):
    try:
        for _ in call:
            pass
    except fleet.grpc.RpcError:
        pass  # cancelled at the end


def num_ended(worker):
    """Calls of Generate that have ended at the worker."""
    return sum(v for k, v in fleet.scrape(worker.metrics_address).items()
               if k.startswith("continuo_requests_total"))
