#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers on the CPU, for embeddings.py. Reads lines of JSON and answers each with one.

The first is {"model": DIR, "weights": "fp32" or "bf16", "threads": N, "clock": "wall" or "cpu", "batch": N}; the answer
has versions. Then each {"texts": [[ID, ...], ...]} is answered by {"seconds": S, "vectors": [...]}. Texts are token ids, so
that no tokenizer counts; they run through the model's own modules in batches, longest first and padded, as encode does.

OpenMP's threads wait passively, which on a machine that others use as well is many times as fast as the default, and no
slower on a quiet one.
"""
import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import sentence_transformers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else is an answer

    def answer(message):
        out.write(json.dumps(message) + "\n")
        out.flush()

    task = json.loads(sys.stdin.readline())
    torch.set_num_threads(task["threads"])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[task["weights"]]
    model = sentence_transformers.SentenceTransformer(task["model"], device="cpu", model_kwargs={"dtype": dtype})
    now = time.perf_counter if task["clock"] == "wall" else time.process_time
    answer({"sentence-transformers": sentence_transformers.__version__, "transformers": transformers.__version__,
            "torch": torch.__version__})
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        vectors = []
        begin = now()
        with torch.inference_mode():
            order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
            for first in range(0, len(texts), task["batch"]):
                batch = [texts[i] for i in order[first:first + task["batch"]]]
                longest = max(map(len, batch))
                ids = torch.tensor([text + [0] * (longest - len(text)) for text in batch])
                mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in batch])
                features = model({"input_ids": ids, "attention_mask": mask})
                vectors += features["sentence_embedding"].float().tolist()
            vectors = [vector for _, vector in sorted(zip(order, vectors))]
        answer({"seconds": now() - begin, "vectors": vectors})


if __name__ == "__main__":
    main()
