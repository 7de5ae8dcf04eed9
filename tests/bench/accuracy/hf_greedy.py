#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy answers by transformers on the CPU in fp32. greedy.py runs it in an environment that has torch and
transformers. Reads {"model": DIR, "threads": N, "tokens": N, "prompts": [[id, …], …]} as JSON from its input; writes
{"versions": …, "answers": [{"ids": [id, …], "gaps": [logit of the first less that of the second, …]}, …]}."""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402


def main():
    task = json.load(sys.stdin)
    torch.set_num_threads(task["threads"])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32).eval()
    answers = []
    for prompt in task["prompts"]:
        with torch.inference_mode():
            result = model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                max_new_tokens=task["tokens"], pad_token_id=model.config.eos_token_id, return_dict_in_generate=True,
                output_logits=True)
        best = [torch.topk(logits[0].float(), 2).values for logits in result.logits]
        answers.append({"ids": result.sequences[0, len(prompt):].tolist(),
                        "gaps": [round(float(two[0] - two[1]), 5) for two in best]})
        print(f"{len(answers)} of {len(task['prompts'])}", file=sys.stderr, flush=True)
    json.dump({"versions": f"torch {torch.__version__}, transformers {transformers.__version__}", "answers": answers},
              sys.stdout)


if __name__ == "__main__":
    main()
