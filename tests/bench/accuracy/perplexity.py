#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what number formats lose: perplexity of a real model over a long text, scored by a worker.

    build/venv/bin/python tests/bench/accuracy/perplexity.py fp32 bf16 int8 int4 kv-int8 Q8_0 Q4_K_M [--tokens=50000]
    build/venv/bin/python tests/bench/accuracy/perplexity.py --table

The model is SmolLM2-135M-Instruct (scripts/real_model.sh --folder). fp32, bf16, int8 and int4 are values of
--weights on its folder, kv-int8 and kv-bf16 are such keys and values beside fp32 weights, FORMAT+bf16 has activations
in bf16 as for a checkpoint of that type. Other names are types of GGUF files (gguf_types.py), which the worker reads
with --weights=auto. --peer scores the same chunks of the GGUF files by llama.cpp's llama-perplexity, too (as root).

The text is cut into chunks of --chunk tokens, which share nothing. Each token but a chunk's first counts; beside
llama.cpp, which wants some context, those of the second half. A ratio to fp32 has the bounds of 95 of 100 drawings
of chunks. Results of all runs are kept in build/bench/perplexity.json, by format and number of tokens; --table
prints them.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(pathlib.Path(__file__).parent)]
import fleet  # noqa: E402
import gguf_types  # noqa: E402
from fleet import pb  # noqa: E402

MODEL = ROOT / "build/smollm2/SmolLM2-135M-Instruct"
GGUF = ROOT / "build/real-model/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = fleet.SHARED / "data/prompts/war-and-peace.txt"
OUT = ROOT / "build/bench/perplexity.json"
FOLDER_FLAGS = {"fp32": ("--weights=fp32",), "bf16": ("--weights=bf16",), "int8": ("--weights=int8",),
                "int4": ("--weights=int4",), "kv-int8": ("--weights=fp32", "--kv_dtype=int8"),
                "kv-bf16": ("--weights=fp32", "--kv_dtype=bf16")}
DRAWINGS = 2000


def cpu_seconds(worker):
    fields = pathlib.Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bf16_folder(model, out):
    """Writes the model's folder with matrices and gains rounded to bf16, as it would be published."""
    import numpy
    if (out / "config.json").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    data = (model / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header, parts, end = {}, [], 0
    for name, info in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            header[name] = info
            continue
        begin, stop = (8 + size + offset for offset in info["data_offsets"])
        bits = numpy.frombuffer(data[begin:stop], "<u4").astype(numpy.uint64)
        rounded = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": info["shape"], "data_offsets": [end, end + len(rounded)]}
        end += len(rounded)
        parts.append(rounded)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((model / name).read_bytes())
    config = json.loads((model / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}, indent=2))
    return out


def place(form, options):
    """The model and the worker's flags of a format."""
    if form.endswith("+bf16"):
        return bf16_folder(options.model, ROOT / "build/bench/smollm2-bf16"), (f"--weights={form[:-5]}",)
    if form in FOLDER_FLAGS:
        return options.model, FOLDER_FLAGS[form]
    return gguf_types.make(options.gguf, ROOT / "build/bench/gguf", form), ("--weights=auto",)


def chunks_of(client, options):
    """The text's first tokens, in whole chunks."""
    text = options.text.read_text(encoding="utf-8")[:options.tokens * 8]
    ids = []
    # A request holds so much; words are not cut.
    for begin in range(0, len(text), 100_000):
        piece = text[begin:begin + 100_000]
        request = pb.TokenizeRequest(text=piece, omit_special_tokens=True)
        ids.extend(client.inference.Tokenize(request).token_ids)
        if len(ids) >= options.tokens:
            break
    count = options.tokens // options.chunk
    if len(ids) < count * options.chunk:
        raise RuntimeError(f"{options.text} has {len(ids)} tokens only")
    return [ids[i * options.chunk:(i + 1) * options.chunk] for i in range(count)]


def score(form, options):
    """The negative log-probabilities of each chunk's tokens, and what it took."""
    model, flags = place(form, options)
    worker = fleet.start_worker(
        model, f"--threads={options.threads}", "--kv_cache_memory=512MiB", f"--isa={options.isa}",
        f"--max_context_tokens={options.chunk + 1}", *flags, wait=False)
    loaded = worker.wait_for_log("loaded")
    client = fleet.Client(worker.wait_until_listening().address)
    client.wait_for_model()
    chunks = chunks_of(client, options)
    before = cpu_seconds(worker)

    def of_chunk(ids):
        request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids))
        request.output.prompt_logprobs = 0
        request.stopping.max_tokens = 0
        answer = client.generate(request, timeout=3600)
        scores = [-entry.logprob for entry in answer.prompt_logprobs]
        if len(scores) != len(ids) - 1:
            raise RuntimeError(f"{len(scores)} scores for {len(ids)} tokens")
        return scores

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(of_chunk, chunks))
    took = cpu_seconds(worker) - before
    worker.kill()
    half = options.chunk // 2  # the first token that llama-perplexity scores is the one behind this
    return {"chunk": options.chunk, "sums": [sum(s) for s in scores], "halves": [sum(s[half:]) for s in scores],
            "counts": [len(scores[0]), len(scores[0][half:])], "cpu_s": round(took, 1),
            "weights": loaded.get("weights", ""), "isa": loaded.get("backend", options.isa)}


def score_by_peer(form, options):
    """llama-perplexity's figure for the same text, of the second halves of as many chunks."""
    if not (gguf_types.LLAMA / "usr/bin/llama-perplexity").exists():
        raise RuntimeError("llama-perplexity is missing: tests/bench/peers/setup.sh llama.cpp")
    model, _ = place(form, options)
    # In a root of its own it finds its backends, the one for this processor among them.
    with tempfile.TemporaryDirectory(dir=gguf_types.LLAMA / "tmp") as folder:
        folder = pathlib.Path(folder)
        shutil.copy(model, folder / "model.gguf")
        (folder / "text").write_text(options.text.read_text(encoding="utf-8")[:options.tokens * 8], encoding="utf-8")
        inside = pathlib.Path("/") / folder.relative_to(gguf_types.LLAMA)
        done = subprocess.run(["chroot", gguf_types.LLAMA, "/usr/bin/llama-perplexity", "-m", inside / "model.gguf",
                               "-f", inside / "text", "-c", str(options.chunk), "-t", str(options.threads),
                               "--chunks", str(options.tokens // options.chunk)],
                              capture_output=True, text=True, timeout=7200, check=False)
    found = re.search(r"Final estimate: PPL = ([0-9.]+) \+/- ([0-9.]+)", done.stdout + done.stderr)
    if found is None:
        raise RuntimeError(f"llama-perplexity ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return float(found.group(1))


def perplexity(result, half=False):
    return math.exp(sum(result["halves" if half else "sums"]) /
                    (result["counts"][half] * len(result["sums"])))


def ratio(result, base):
    """The perplexity beside that of another format over the same chunks, and its bounds."""
    n = min(len(result["sums"]), len(base["sums"]))
    differences = [a - b for a, b in zip(result["sums"][:n], base["sums"][:n])]
    draw = random.Random(1)
    drawn = sorted(sum(draw.choices(differences, k=n)) for _ in range(DRAWINGS))
    count = n * result["counts"][0]
    return [math.exp(x / count) for x in (sum(differences), drawn[DRAWINGS // 40], drawn[-DRAWINGS // 40])]


def print_table(results):
    print("| format | tokens | perplexity | to fp32, with bounds | second halves | llama.cpp |")
    print("| --- | --- | --- | --- | --- | --- |")
    for key, result in results.items():
        form, tokens = key.split("@")
        # The longest run of fp32 has all chunks of the others.
        bases = [r for k, r in results.items() if k.split("@")[0] == "fp32" and r["chunk"] == result["chunk"]]
        base = max(bases, key=lambda r: len(r["sums"]), default=None)
        beside = ""
        if base is not None and form != "fp32":
            middle, low, high = ratio(result, base)
            beside = f"{middle:.4f} ({low:.4f} to {high:.4f})"
        peer = f"{result['llama.cpp']:.3f}" if "llama.cpp" in result else ""
        print(f"| {form} | {int(tokens):,} | {perplexity(result):.3f} | {beside} | "
              f"{perplexity(result, half=True):.3f} | {peer} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("formats", nargs="*")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--gguf", type=pathlib.Path, default=GGUF)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for form in options.formats:
        key = f"{form}@{options.tokens // options.chunk * options.chunk}"
        results[key] = score(form, options)
        is_file = form not in FOLDER_FLAGS and not form.endswith("+bf16")
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(results) + "\n")
        if options.peer and is_file:
            results[key]["llama.cpp"] = score_by_peer(form, options)
            OUT.write_text(json.dumps(results) + "\n")
        print(f"{key}: {perplexity(results[key]):.4f}, {results[key]['cpu_s']} s of CPU", flush=True)
    if options.table or options.formats:
        print_table(results)


if __name__ == "__main__":
    main()
