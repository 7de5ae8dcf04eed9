#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares greedy answers to many prompts with those of transformers, on the same dequantised weights in fp32: from a
folder of safetensors and from the GGUF file, one at a time and 16 at once.

    build/venv/bin/python tests/bench/accuracy/greedy.py [--prompts=100] [--tokens=48] [--python=PROGRAM]

The model is SmolLM2-135M-Instruct (scripts/real_model.sh, also with --folder). PROGRAM is a Python with torch and
transformers (default: that of tests/bench/peers/setup.sh vllm); without one the answers of an earlier run, in
build/bench/greedy.json, serve. Ends with 1 where an answer differs, and says by how much transformers' two best
logits were apart at the first token that does.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

MODEL = ROOT / "build/smollm2/SmolLM2-135M-Instruct"
GGUF = ROOT / "build/real-model/SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = fleet.SHARED / "data/prompts/spec_bench_mtbench_gsm8k.jsonl"
OUT = ROOT / "build/bench/greedy.json"
AT_ONCE = 16


def ask(client, text, tokens):
    request = pb.GenerateRequest()
    request.conversation.messages.add(role="user", content=text)
    request.sampling.temperature = 0
    request.stopping.max_tokens = tokens
    request.output.prompt_tokens = True
    answer = client.generate(request, timeout=600)
    prompt = [token.token_id for response in answer.responses for token in response.prompt_tokens]
    return prompt, answer.ids.get(0, [])


def answers_of(model, texts, options, at_once):
    """(prompt ids, answer ids) of each text."""
    worker = fleet.start_worker(model, "--weights=fp32", f"--threads={options.threads}",
                                "--kv_cache_memory=512MiB", "--max_context_tokens=2048")
    client = fleet.Client(worker.address)
    client.wait_for_model()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(lambda text: ask(client, text, options.tokens), texts))
    worker.kill()
    return results


def by_transformers(prompts, options):
    task = {"model": str(options.model), "threads": options.threads, "tokens": options.tokens, "prompts": prompts}
    kept = json.loads(OUT.read_text()) if OUT.exists() else None
    if kept is not None and kept["prompts"] == prompts and kept["tokens"] == options.tokens:
        return kept
    done = subprocess.run([options.python, str(pathlib.Path(__file__).parent / "hf_greedy.py")],
                          input=json.dumps(task), stdout=subprocess.PIPE, text=True, timeout=7200, check=True)
    result = {"prompts": prompts, "tokens": options.tokens, **json.loads(done.stdout)}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result) + "\n")
    return result


def differences(answers, theirs):
    """What to say of each answer that is not transformers'."""
    lines = []
    for i, (got, want) in enumerate(zip(answers, theirs)):
        if got == want["ids"]:
            continue
        at = next((j for j, (a, b) in enumerate(zip(got, want["ids"])) if a != b), min(len(got), len(want["ids"])))
        gap = want["gaps"][at] if at < len(want["gaps"]) else "past the end"
        lines.append(f"  prompt {i} from token {at} on: {got[at:at + 3]}, not {want['ids'][at:at + 3]}; gap {gap}")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--gguf", type=pathlib.Path, default=GGUF)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", default=str(ROOT / "build/bench/vllm/bin/python"))
    options = parser.parse_args()
    texts = [json.loads(line)["turns"][0] for line in PROMPTS.read_text().splitlines()[:options.prompts]]
    if len(texts) < options.prompts:
        sys.exit(f"{PROMPTS} has {len(texts)} prompts")
    theirs, failed = None, False
    for name, model in (("safetensors", options.model), ("GGUF", options.gguf)):
        for at_once in (1, AT_ONCE):
            results = answers_of(model, texts, options, at_once)
            prompts = [prompt for prompt, _ in results]
            if theirs is None:
                theirs = by_transformers(prompts, options)
                print(theirs["versions"], flush=True)
            if prompts != theirs["prompts"]:
                sys.exit(f"{name}: the prompts have other tokens")
            lines = differences([answer for _, answer in results], theirs["answers"])
            failed |= bool(lines)
            print(f"{name}, {at_once} at once: {len(texts) - len(lines)} of {len(texts)} are equal, "
                  f"{sum(len(answer) for _, answer in results)} tokens", *lines, sep="\n", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
