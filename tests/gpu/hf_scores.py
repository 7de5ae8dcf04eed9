# SPDX-License-Identifier: Apache-2.0
"""hf_scores.py PROGRAM MODEL [--device=cuda:0] [--json=FILE]: log-probabilities beside transformers'.

PROGRAM is score_tokens, run with CONTINUO_LIBRARIES, if set, as LD_LIBRARY_PATH. The same random
tokens are scored by Continuo on the device and by Hugging Face's model on PyTorch, there in float32
and in bfloat16. What is asked for: in bf16 Continuo is in the mean no further from float32 than
PyTorch's own bf16 is, by more than a quarter. The largest difference is printed alone: of a thousand
one may be larger by chance.
Ends with 0 where that is so, 77 where PyTorch or transformers are not installed.
"""
import argparse
import json
import os
import random
import subprocess
import sys

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SLACK = 1.25
LENGTHS = [700, 333, 64, 17, 2]  # tokens of the sequences, which share steps


def by_transformers(model_dir, sequences, dtype, device):
    # From version 5 on the argument has another name.
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, **{name: dtype})
    model = model.to(device).eval()
    scores = []
    with torch.inference_mode():
        for ids in sequences:
            logits = model(torch.tensor([ids], device=device)).logits[0, :-1].float()
            logprobs = torch.log_softmax(logits, dim=-1)
            following = torch.tensor(ids[1:], device=device).unsqueeze(1)
            scores.append(logprobs.gather(1, following).squeeze(1).tolist())
    return scores


def difference(some, others):
    """The mean and the largest."""
    all_of = [abs(a - b) for x, y in zip(some, others, strict=True)
              for a, b in zip(x, y, strict=True)]
    return sum(all_of) / len(all_of), max(all_of)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json")
    options = parser.parse_args()
    device = "cuda" if options.device.startswith("cuda") else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    with open(f"{options.model}/config.json") as file:
        vocabulary = json.load(file)["vocab_size"]
    draw = random.Random(1)
    sequences = [[draw.randrange(vocabulary) for _ in range(n)] for n in LENGTHS]
    exact = by_transformers(options.model, sequences, torch.float32, device)
    theirs = difference(by_transformers(options.model, sequences, torch.bfloat16, device), exact)
    environment = dict(os.environ)
    if "CONTINUO_LIBRARIES" in environment:
        environment["LD_LIBRARY_PATH"] = environment["CONTINUO_LIBRARIES"]
    scored = subprocess.run(
        [options.program, f"--model={options.model}", f"--device={options.device}"],
        input=json.dumps(sequences), capture_output=True, text=True, env=environment)
    if scored.returncode != 0:
        print(scored.stderr)
        return 1
    ours = difference(json.loads(scored.stdout), exact)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{options.model} on {options.device} beside {versions} in float32, of "
          f"{sum(LENGTHS) - len(LENGTHS)} log-probabilities:")
    print(f"  PyTorch in bf16   mean {theirs[0]:.5f}  most {theirs[1]:.5f}")
    print(f"  Continuo in bf16  mean {ours[0]:.5f}  most {ours[1]:.5f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"model": options.model, "device": options.device, "versions": versions,
                       "pytorch": theirs, "continuo": ours}, file)
    return 0 if ours[0] <= SLACK * theirs[0] else 1


sys.exit(main())
