#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Static batches in a Hugging Face text-generation pipeline on the CPU: the story's baseline. Runs
in an environment with transformers (build/bench/vllm): reads jobs as JSON from its input, writes
what they took to its output.

Input: {"model": DIR, "threads": N, "clock": "wall" or "cpu", "warm": PROMPTS,
        "jobs": [{"prompts": [...], "tokens": N}]}
Output: a line {"versions": ...}, then for each job {"seconds": [...]}: when each token of its rows
was there. A batch that stops at an earlier token does the same until then.

OpenMP's threads wait passively, which on a machine that others use as well is many times as fast as
the default, and no slower on a quiet one.
"""
import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch  # noqa: E402
import transformers  # noqa: E402


def main():
    task = json.load(sys.stdin)
    torch.set_num_threads(task["threads"])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pipe = transformers.pipeline("text-generation", model=task["model"], device="cpu",
                                 dtype=torch.bfloat16)
    pipe.tokenizer.pad_token_id = pipe.tokenizer.eos_token_id = pipe.model.config.eos_token_id
    pipe.tokenizer.padding_side = "left"

    now = time.perf_counter if task["clock"] == "wall" else time.process_time

    def run(prompts, tokens):
        """Seconds until all rows have 1, 2, … tokens; checks that they have."""
        at = []

        def note(*_, **__):
            at.append(now() - begin)
            return torch.zeros(len(prompts), dtype=torch.bool)  # nobody stops

        begin = now()
        answers = pipe(prompts, batch_size=len(prompts), do_sample=False, max_new_tokens=tokens,
                       min_new_tokens=tokens, return_tensors=True,
                       stopping_criteria=transformers.StoppingCriteriaList([note]))
        for prompt, answer in zip(prompts, answers):
            length = len(answer[0]["generated_token_ids"])
            if length != len(prompt) + tokens:
                raise RuntimeError(f"{length} tokens, not {len(prompt)} and {tokens}")
        if len(at) != tokens:
            raise RuntimeError(f"{len(at)} steps for {tokens} tokens")
        return at

    run(task["warm"], 4)
    print(json.dumps({"versions": {"transformers": transformers.__version__,
                                   "torch": torch.__version__}}), flush=True)
    for job in task["jobs"]:
        print(json.dumps({"seconds": run(job["prompts"], job["tokens"])}), flush=True)


if __name__ == "__main__":
    main()
