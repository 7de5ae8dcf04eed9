#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Static against continuous batching: one engine both ways, the bound of what can be gained beside
each figure, and static batches in a Hugging Face pipeline on the same weights.

Requests of 512 and of 32 prompt tokens want answers of exponential length, mean 128, drawn again
above a cap. Figures are useful tokens a second: those that were asked for.

* static: batches of --batch requests; each runs until its longest answer is complete, as every row
  is carried to that length, and only then the next batch begins.
* continuous: all requests are queued; a row that is free takes the next one at once.
* bound: what a full batch costs is measured on the engine (its prompts, and a step as a line over
  the position); static is charged for every row of every step, continuous only for what is wanted
  and with no row ever idle. See workload.py.
* --shared_prefix=N: all prompts begin with the same N tokens, which continuous batching finds in the
  prefix cache; static batches read all of every prompt.
* Both ways without speculation: answers of random weights repeat themselves, and fewer rows gain
  more by it.
* --clock=cpu counts CPU seconds of the process that is measured instead of wall time, and with
  --threads=1 nothing waits in a loop: for a machine that others use as well.
* Hugging Face: transformers' pipeline with the same static batches (tests/bench/peers/setup.sh
  vllm installs it). What a batch does depends on its longest answer alone, so one batch as long as
  any is measured token by token, and a cell's batches are charged what it took to their lengths.
  Without it, or with --no_hf, the rest is measured; --hf makes that an error.

The whole comparison is the Qwen3-0.6B shape with 256 requests a cell: --shape=qwen3-0.6b
--requests=256, hours on two cores. The default is a model of an eighth of its
layers' work with 96 requests, minutes; --prompts, --caps and --add measure it in pieces, --only_hf
the pipeline alone. Prints a table, writes JSON (--json) and a plot (--svg), and ends non-zero where
a request failed.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from plot import draw  # noqa: E402
from workload import StepCosts, batches, draw_lengths, draw_prompt, static_batches  # noqa: E402

OUT = ROOT / "build/bench"
MEAN = 128
# Qwen3-0.6B with half of every size but the width of heads: 72 million parameters.
SMALL = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
    "attention_bias": False, "vocab_size": 32768, "hidden_size": 512, "intermediate_size": 1536,
    "num_hidden_layers": 14, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "tie_word_embeddings": True, "bos_token_id": 32000, "eos_token_id": 32001}
# A model of a seventh of that, so that hundreds of requests take minutes on one thread.
TINY = {**SMALL, "vocab_size": 8192, "hidden_size": 256, "intermediate_size": 768,
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        "bos_token_id": 8000, "eos_token_id": 8001}
OWN_SHAPES = {"small": SMALL, "tiny": TINY}
SHORT, LONG = 33, 513  # tokens of the batches that tell what a step costs


def make_model(shape):
    """The folder of the model, written where it is not there yet."""
    folder = OUT / shape
    if not (folder / "config.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        what = f"--shape={shape}"
        if shape in OWN_SHAPES:
            config = OUT / f"{shape}.json"
            config.write_text(json.dumps(OWN_SHAPES[shape]))
            what = f"--config={config}"
        subprocess.run([fleet.BIN / "continuo-make-model", what, f"--out={folder}", "--seed=1"],
                       check=True)
    return folder


class Engine:
    """Our own engine, driven over gRPC; an answer comes in one piece, so that the client costs
    nothing."""

    def __init__(self, model, batch, prompts, tokens, clock, shared_prefix, flags):
        self.clock, self.shared_prefix = clock, shared_prefix
        blocks = batch * ((prompts + tokens) // 16 + 2)
        self.worker = fleet.start_worker(
            model, f"--max_running={batch}", f"--kv_blocks={blocks}",
            "--max_queued_tokens=10000000", f"--max_context_tokens={prompts + tokens + 16}", *flags)
        self.inference = fleet.Client(self.worker.address).inference
        self.num_prompts = 0

    def start(self, prompt_tokens, tokens, cached, seed):
        """A call that gives exactly so many tokens; for a prompt that was never seen if the seed
        is None."""
        self.num_prompts += 1
        request = pb.GenerateRequest(text=draw_prompt(
            prompt_tokens, self.num_prompts if seed is None else seed, self.shared_prefix))
        request.sampling.temperature = 0
        request.stopping.max_tokens = tokens
        request.stopping.ignore_eos = True
        request.output.collect = True
        request.cache.bypass = not cached
        return self.inference.Generate(request, timeout=3600), prompt_tokens, tokens

    @staticmethod
    def finish(calls):
        for call, prompt_tokens, tokens in calls:
            usage = list(call)[-1].summary.usage
            if (usage.prompt_tokens, usage.completion_tokens) != (prompt_tokens, tokens):
                raise RuntimeError(f"{usage}, not {prompt_tokens} and {tokens}")

    def run(self, prompt_tokens, lengths, cached=False, again=False):
        """Seconds until all requests, sent at once, are answered. `again`: with the prompts that
        such a run had before."""
        begin = self.now()
        self.finish([self.start(prompt_tokens, length, cached, f"again {i}" if again else None)
                     for i, length in enumerate(lengths)])
        return self.now() - begin

    def now(self):
        if self.clock == "wall":
            return time.monotonic()
        tasks = pathlib.Path(f"/proc/{self.worker.process.pid}/task").iterdir()
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9

    def static(self, prompt_tokens, lengths, batch):
        """Seconds of each batch."""
        return [self.run(prompt_tokens, [max(group)] * len(group))
                for group in batches(lengths, batch)]

    def batch_times(self, prompt_tokens, batch):
        """The times of full batches: to prefill new prompts, then for 1, SHORT and LONG tokens each
        after prompts that are in the cache."""
        read = self.run(prompt_tokens, [1] * batch)
        self.run(prompt_tokens, [1] * batch, cached=True, again=True)
        return [read, *(self.run(prompt_tokens, [n] * batch, cached=True, again=True)
                        for n in (1, SHORT, LONG))]


def longest(cells):
    return max(max(c["lengths"]) for c in cells)


def run_hugging_face(python, model, result, arguments):
    """Measures a batch of each prompt length where --json has none that is long enough, and adds
    "hugging_face" to the cells."""
    known = result.setdefault("hugging_face_seconds", {})
    jobs = {}
    for p in arguments.prompts:
        cells = cells_of(result, p)
        if cells and (arguments.only_hf or len(known.get(str(p), [])) < longest(cells)):
            prompts = [draw_prompt(p, f"hf {i}") for i in range(arguments.batch)]
            jobs[str(p)] = {"prompts": prompts, "tokens": longest(cells)}
    if jobs:
        task = {"model": str(model), "threads": arguments.threads, "clock": arguments.clock,
                "warm": [draw_prompt(32, i) for i in range(arguments.batch)],
                "jobs": list(jobs.values())}
        done = subprocess.run([python, pathlib.Path(__file__).with_name("hf_static.py")],
                              input=json.dumps(task), stdout=subprocess.PIPE, text=True, check=True)
        versions, *answers = map(json.loads, done.stdout.splitlines())
        result["versions"] = versions["versions"]
        known |= {p: answer["seconds"] for p, answer in zip(jobs, answers, strict=True)}
    for cell in result["cells"]:
        seconds = known.get(str(cell["prompt_tokens"]), [])
        if longest([cell]) <= len(seconds):
            cell["hugging_face"] = static_batches(cell["lengths"], arguments.batch, seconds)
            print(f"  Hugging Face, {cell['prompt_tokens']} prompt tokens, cap {cell['cap']}: "
                  f"{cell['hugging_face']['useful_tokens_per_second']:.1f} tok/s", flush=True)


def cells_of(result, prompt_tokens):
    return [c for c in result["cells"] if c["prompt_tokens"] == prompt_tokens]


def measure(engine, cell, batch, num_rounds):
    """Measures both ways in turn; returns medians."""
    lengths, prompt_tokens = cell["lengths"], cell["prompt_tokens"]
    useful = sum(lengths)
    rounds = [(sum(engine.static(prompt_tokens, lengths, batch)),
               engine.run(prompt_tokens, lengths, cached=engine.shared_prefix > 0))
              for _ in range(num_rounds)]
    cell["useful_tokens"] = useful
    for name, seconds in zip(("static", "continuous"), zip(*rounds)):
        middle = statistics.median(seconds)
        cell[name] = {"seconds": middle, "useful_tokens_per_second": useful / middle,
                      "of_each_round": seconds}
    cell["gain"] = statistics.median(static / continuous for static, continuous in rounds)


def add_bound(cell, costs, shared_prefix):
    lengths, unread = cell["lengths"], 1 - shared_prefix / cell["prompt_tokens"]
    cell["bound"] = costs.bound(lengths, unread)
    continuous_s = costs.continuous_s(lengths, unread)
    cell["predicted"] = {
        "static_seconds": costs.static_s(lengths), "continuous_seconds": continuous_s,
        "useful_tokens_per_second": sum(lengths) / continuous_s}
    print(f"  {cell['prompt_tokens']} prompt tokens, cap {cell['cap']}: static "
          f"{cell['static']['useful_tokens_per_second']:.1f}, continuous "
          f"{cell['continuous']['useful_tokens_per_second']:.1f} tok/s, {cell['gain']:.2f} times; "
          f"bound {cell['bound']:.2f}", flush=True)


def measure_cells(engine, cells, prompt_tokens, arguments):
    """Measures the cells of one prompt length, and the cost of a step before, between and after
    them, as medians."""
    times = [engine.batch_times(prompt_tokens, arguments.batch)]
    for cell in cells:
        measure(engine, cell, arguments.batch, arguments.rounds)
        times.append(engine.batch_times(prompt_tokens, arguments.batch))
    prompt_s, one_s, short_s, long_s = map(statistics.median, zip(*times))
    costs = StepCosts(arguments.batch, prompt_s, one_s, SHORT, short_s, LONG, long_s)
    print(f"  {prompt_tokens} prompt tokens: a batch's prompts {costs.prompt_s:.2f} s, a step "
          f"{costs.a * 1e3:.2f} ms and {costs.b * 1e6:.2f} us a position", flush=True)
    for cell in cells:
        add_bound(cell, costs, engine.shared_prefix)
    return {"prompts_of_a_batch_s": costs.prompt_s, "step_s": costs.a,
            "step_s_a_position": costs.b, "times": times}


def table(cells):
    lines = ["prompt   cap  mean   static  continuous  gain  bound  of bound  Hugging Face  gain"]
    for c in cells:
        hf = c.get("hugging_face")
        rate = hf["useful_tokens_per_second"] if hf else None
        ours = c["continuous"]["useful_tokens_per_second"]
        lines.append(
            f"{c['prompt_tokens']:6} {c['cap']:5} {c['useful_tokens'] / c['requests']:5.1f} "
            f"{c['static']['useful_tokens_per_second']:8.1f} {ours:11.1f} {c['gain']:5.2f} "
            f"{c['bound']:6.2f} {c['gain'] / c['bound']:8.0%} " +
            (f"{rate:13.1f} {ours / rate:5.1f}" if hf else "            -     -"))
    return "\n".join(lines)


def add_cells(result, before):
    """The cells of another run, but for those that were measured again."""
    for key in ("model", "batch", "threads", "seed", "clock", "shared_prefix"):
        if before.get(key, 0) != result[key]:
            sys.exit(f"--add: {key} was {before.get(key, 0)}, not {result[key]}")
    measured = {(c["prompt_tokens"], c["cap"]) for c in result["cells"]}
    result["cells"] += [c for c in before["cells"]
                        if (c["prompt_tokens"], c["cap"]) not in measured]
    result["cells"].sort(key=lambda c: (-c["prompt_tokens"], c["cap"]))
    result["costs"] = {**before["costs"], **result["costs"]}
    for key in ("versions", "hugging_face_seconds"):
        if key in before:
            result[key] = before[key]


def write(result, arguments):
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1))
    arguments.svg.write_text(draw(result))


def integers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="See the head of the file for what is measured.")
    parser.add_argument("--shape", default="small",
                        help="small, tiny, or a shape that continuo-make-model knows (%(default)s)")
    parser.add_argument("--model",
                        help="a folder instead; its tokenizer has to give a token a letter")
    parser.add_argument("--requests", type=int, default=96, help="a cell (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1,
                        help="of each cell, by turns (%(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="rows of a batch (%(default)s)")
    parser.add_argument("--prompts", type=integers, default=[512, 32], help="tokens (512,32)")
    parser.add_argument("--caps", type=integers, default=[32, 128, 512, 1536],
                        help="of answers, in tokens (32,128,512,1536)")
    parser.add_argument("--shared_prefix", type=int, default=0, help="tokens, of every prompt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--worker_flags", default="", help="more of them, with spaces")
    parser.add_argument("--python", type=pathlib.Path, default=OUT / "vllm/bin/python",
                        help="of an environment with transformers")
    parser.add_argument("--hf", action="store_true", help="Hugging Face has to be measured")
    parser.add_argument("--no_hf", action="store_true")
    parser.add_argument("--only_hf", action="store_true", help="and adds to what --json has")
    parser.add_argument("--add", action="store_true",
                        help="keep the cells of other prompts and caps that --json has")
    parser.add_argument("--json", type=pathlib.Path, default=OUT / "batching.json")
    parser.add_argument("--svg", type=pathlib.Path, default=OUT / "batching.svg")
    arguments = parser.parse_args()
    if not 0 <= arguments.shared_prefix < min(arguments.prompts):
        parser.error("--shared_prefix is shorter than every prompt")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the worker ends with this
    model = pathlib.Path(arguments.model) if arguments.model else make_model(arguments.shape)
    if arguments.only_hf:
        result = json.loads(arguments.json.read_text())
    else:
        cells = [{"prompt_tokens": p, "cap": cap, "requests": arguments.requests,
                  "lengths": draw_lengths(arguments.requests, MEAN, cap, arguments.seed)}
                 for p in arguments.prompts for cap in arguments.caps]
        result = {"model": model.name, "batch": arguments.batch, "threads": arguments.threads,
                  "seed": arguments.seed, "clock": arguments.clock,
                  "shared_prefix": arguments.shared_prefix, "cells": cells}
        print(f"{model.name}, {arguments.requests} requests a cell, batches of {arguments.batch}",
              flush=True)
        engine = Engine(model, arguments.batch, max(arguments.prompts),
                        max(*arguments.caps, LONG), arguments.clock, arguments.shared_prefix,
                        [f"--threads={arguments.threads}", "--speculation=off",
                         *arguments.worker_flags.split()])
        engine.run(min(arguments.prompts), [8] * arguments.batch)  # warm
        result["costs"] = {
            str(p): measure_cells(engine, [c for c in cells if c["prompt_tokens"] == p], p,
                                  arguments) for p in arguments.prompts}
        engine.worker.kill()
        if arguments.add and arguments.json.exists():
            add_cells(result, json.loads(arguments.json.read_text()))
        write(result, arguments)
    if arguments.python.exists() and not arguments.no_hf:
        run_hugging_face(arguments.python, model, result, arguments)
    elif arguments.hf or arguments.only_hf:
        sys.exit(f"{arguments.python} is not there: tests/bench/peers/setup.sh vllm")
    write(result, arguments)
    print(table(result["cells"]))


if __name__ == "__main__":
    main()
