#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeddings beside sentence-transformers: texts a second and the cosines of the vectors, on the same weights, by turns.

The model has the shape of bge-small-en-v1.5 (--shape=bge-small), modernbert-base or Qwen3-Embedding-0.6B (qwen3-0.6b),
random weights and vectors of length 1; pooling is of the first token, of Qwen3 of the last one. Texts have --tokens tokens
each, all different; with --least_tokens their numbers are spread evenly from that on, and sentence-transformers sorts them
by length and pads each batch to its longest, as its encode does. A round is one call of Embed with --texts texts to a
worker, then sentence-transformers on the same texts in batches of --batch; both keep what they loaded. --clock=cpu counts
CPU seconds of the process that is measured instead of wall time.

sentence-transformers runs in an environment of its own: tests/bench/peers/setup.sh sentence-transformers installs it.
Prints a table, writes JSON (--json), and ends non-zero where a cosine is below 0.9999 (fp32) or 0.99 (others).
"""
import argparse
import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/bench/batching")]
import fleet  # noqa: E402
from batching import OUT, make_model  # noqa: E402
from fleet import pb  # noqa: E402

LEAST_COSINE = {"fp32": 0.9999, "bf16": 0.99, "int8": 0.99}
PEER_WEIGHTS = {"int8": "fp32"}  # it has no integers
MODULES = {
    "modules.json": [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                     for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"),
                                                       ("2_Normalize", "Normalize")])],
    "config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": None},
}


def make_folder(shape):
    """The model as sentence-transformers would save it, written where it is not there yet."""
    plain = make_model(shape)
    pooling = "pooling_mode_lasttoken" if shape.startswith("qwen") else "pooling_mode_cls_token"
    folder = plain.with_name(plain.name + "-embedding")
    if not (folder / "modules.json").exists():
        shutil.copytree(plain, folder, dirs_exist_ok=True)
        size = json.loads((folder / "config.json").read_text())["hidden_size"]
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": size, pooling: True}))
        for name, content in MODULES.items():
            (folder / name).write_text(json.dumps(content))
    return folder


class Worker:
    def __init__(self, folder, weights, threads, clock, flags):
        self.clock = clock
        self.worker = fleet.start_worker(folder, f"--weights={weights}", f"--threads={threads}", "--model_name=vectors",
                                         "--kv_cache_memory=1GiB", *flags)
        self.stub = fleet.Client(self.worker.address).inference

    def now(self):
        if self.clock == "wall":
            return time.monotonic()
        tasks = pathlib.Path(f"/proc/{self.worker.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def encode(self, texts):
        """Seconds, and the vectors."""
        inputs = [pb.EmbedInput(token_ids=pb.TokenIds(ids=ids)) for ids in texts]
        begin = self.now()
        response = self.stub.Embed(pb.EmbedRequest(inputs=inputs, cache=pb.Cache(bypass=True)), timeout=3600)
        return self.now() - begin, [list(vector.values) for vector in response.embeddings]


class Peer:
    """sentence_transformers_peer.py in its environment."""

    def __init__(self, python, folder, weights, threads, clock, batch):
        self.process = subprocess.Popen([python, pathlib.Path(__file__).with_name("sentence_transformers_peer.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = self.ask({"model": str(folder), "weights": weights, "threads": threads, "clock": clock,
                                  "batch": batch})

    def ask(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("sentence_transformers_peer.py ended")
        return json.loads(line)

    def encode(self, texts):
        answer = self.ask({"texts": texts})
        return answer["seconds"], answer["vectors"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def cosine(a, b):
    a, b = numpy.asarray(a, numpy.float64), numpy.asarray(b, numpy.float64)
    return float(a @ b / numpy.sqrt((a @ a) * (b @ b)))


def draw_texts(number, arguments, vocabulary, seed):
    draw = random.Random(seed)
    least = arguments.least_tokens or arguments.tokens
    lengths = [least + (arguments.tokens - least) * i // max(1, number - 1) for i in range(number)]
    draw.shuffle(lengths)
    return [[draw.randrange(1000, vocabulary) for _ in range(length)] for length in lengths]


def measure(folder, weights, arguments):
    flags = arguments.worker_flags.split()
    worker = Worker(folder, weights, arguments.threads, arguments.clock, flags)
    peer = Peer(arguments.python, folder, PEER_WEIGHTS.get(weights, weights), arguments.threads, arguments.clock, arguments.batch)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"] - 1000
    for side in (worker, peer):
        side.encode(draw_texts(4, arguments, vocabulary, "warm"))
    rounds, least = [], 1.0
    for number in range(arguments.rounds):
        texts = draw_texts(arguments.texts, arguments, vocabulary, number)
        ours, vectors = worker.encode(texts)
        theirs, others = peer.encode(texts)
        least = min(least, *(cosine(a, b) for a, b in zip(vectors, others, strict=True)))
        rounds.append((ours, theirs))
    peer.end()
    worker.worker.kill()
    ours, theirs = (statistics.median(times) for times in zip(*rounds))
    return {"weights": weights, "rounds": rounds, "texts_per_second": arguments.texts / ours,
            "peer_texts_per_second": arguments.texts / theirs,
            "gain": statistics.median(theirs / ours for ours, theirs in rounds), "least_cosine": least,
            "versions": peer.versions}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="See the head of the file for what is measured.")
    parser.add_argument("--shape", default="bge-small", help="of continuo-make-model (%(default)s)")
    parser.add_argument("--weights", default="fp32,bf16", help="fp32, bf16 or int8, one after the other; beside int8 the other side has fp32 (%(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of the longest text (%(default)s)")
    parser.add_argument("--least_tokens", type=int, default=0, help="of the shortest one; 0: of all as many")
    parser.add_argument("--texts", type=int, default=64, help="of a round (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="of sentence-transformers (%(default)s, its default)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--worker_flags", default="", help="more of them, with spaces")
    parser.add_argument("--python", type=pathlib.Path, default=OUT / "sentence-transformers/bin/python",
                        help="of an environment with sentence-transformers")
    parser.add_argument("--json", type=pathlib.Path, default=OUT / "embeddings.json")
    arguments = parser.parse_args()
    if not arguments.python.exists():
        sys.exit(f"{arguments.python} is not there: tests/bench/peers/setup.sh sentence-transformers")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the worker ends with this
    folder = make_folder(arguments.shape)
    print(f"{folder.name}, {arguments.texts} texts of {arguments.least_tokens or arguments.tokens} to {arguments.tokens} tokens, {arguments.threads} threads, "
          f"{arguments.clock} time", flush=True)
    print("weights   texts/s   sentence-transformers   gain   least cosine", flush=True)
    cells = []
    for weights in arguments.weights.split(","):
        cell = measure(folder, weights, arguments)
        cells.append(cell)
        print(f"{weights:7} {cell['texts_per_second']:9.2f} {cell['peer_texts_per_second']:23.2f} {cell['gain']:6.2f} "
              f"{cell['least_cosine']:14.7f}", flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"shape": arguments.shape, "tokens": arguments.tokens,
                                          "least_tokens": arguments.least_tokens, "texts": arguments.texts, "threads": arguments.threads,
                                          "clock": arguments.clock, "cells": cells}, indent=1))
    bad = [cell["weights"] for cell in cells if cell["least_cosine"] < LEAST_COSINE.get(cell["weights"], 0)]
    if bad:
        sys.exit(f"vectors differ with {', '.join(bad)}")


if __name__ == "__main__":
    main()
