#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a step on a GPU, kernel by kernel, from the model's sizes and the step's plan.

    cost_model.py                        the predictions of docs/cuda.md, as its table
    cost_model.py RESULTS...             predictions beside the figures of run.sh's results
    cost_model.py --kernels SHAPE ROWS CONTEXT [WEIGHTS KV]
                                         what each kernel of a decode step takes

A kernel takes the longer of its bytes at the device's read bandwidth and its operations at the device's
peak, each times the share of it that kernels of its class reach (SHARES), and no less than LATENCY.
RESULTS are folders build/gpu-results. With them the ceilings are those that were measured there.
"""
import dataclasses
import json
import pathlib
import sys

WIDTH = {"bf16": 2, "fp8": 1 + 4 / 4096, "int8": 1 + 2 / 128, "int4": 0.5 + 2 / 64}  # bytes a number


@dataclasses.dataclass(frozen=True)
class Model:
    """Sizes as in a config.json; `experts` of them, `per_token` of which a row takes, or none."""
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    experts: int = 0
    per_token: int = 0

    def kv_bytes(self, kv):
        """Bytes of one position of one layer; 8-bit rows have a scale for each head."""
        return 2 * self.kv_heads * (self.head_dim * (2 if kv == "bf16" else 1) + (0 if kv == "bf16" else 4))


MODELS = {m.name: m for m in (
    Model("qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936),
    Model("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256),
    Model("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256),
    Model("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256),
    Model("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, 128, 8),
)}


@dataclasses.dataclass(frozen=True)
class Device:
    """Rates that a device reaches: GB/s of reading, TFLOP/s of large products."""
    name: str
    gb_per_s: float
    bf16: float
    fp8: float


# Measured by ops_bench --only=ceilings, and for the H100 by the vendor's ratio of bandwidths.
DEVICES = {d.name: d for d in (Device("NVIDIA H200", 4545, 790, 1150),
                               Device("NVIDIA H100 80GB HBM3", 3130, 790, 1150))}

# The share of its ceiling that a kernel of each class is assumed to reach.
SHARES = {
    "small_m": 0.88,   # products of at most 64 rows read their weights
    "large_m": 0.90,   # products of more rows
    "decode": 0.80,    # attention of one row a sequence, over bf16
    "decode8": 0.70,   # and over 8-bit keys and values
    "prompt": 0.40,    # attention of prompts
    "rows": 0.65,      # norms, gates, rotation
    "experts": 0.70,   # experts of few rows each read their weights
    "grouped": 0.45,   # experts of many rows
}
LATENCY = 2.0  # us from the beginning of a kernel of a graph to that of the next, which waits for it
# NCCL's all-reduce over NVLink inside a node: a fixed part in us, and GB/s of an f32 sum.
ALL_REDUCE_US, ALL_REDUCE_GB_PER_S = 14.0, 200.0


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    kind: str
    bytes: float
    flops: float = 0
    number: str = "bf16"
    seconds: float = 0  # fixed, where bytes and operations do not tell

    def bound(self, device):
        """Seconds at the device's ceiling, without any latency."""
        if self.seconds:
            return self.seconds
        return max(self.bytes / (device.gb_per_s * 1e9), self.flops / (getattr(device, self.number) * 1e12))

    def cost(self, device, shares):
        if self.seconds:
            return self.seconds
        return max(self.bound(device) / shares[self.kind], LATENCY * 1e-6)


def product(name, rows, columns, k, weights, out_bytes=2):
    """x [rows, k] times w [columns, k] transposed."""
    fp8 = weights == "fp8"
    return Kernel(name, "small_m" if rows <= 64 else "large_m",
                  columns * k * WIDTH[weights] + rows * k * (1 if fp8 else 2) + rows * columns * out_bytes,
                  2.0 * rows * columns * k, "fp8" if fp8 else "bf16")


def step(model, sequences, weights="bf16", kv="bf16", ranks=1, wanted=None):
    """The kernels of a step. `sequences` are pairs of rows and positions before their last row's end,
    `wanted` the rows whose next token is sampled: by default one a sequence. With several ranks it is
    one rank's part."""
    rows = sum(r for r, _ in sequences)
    wanted = len(sequences) if wanted is None else wanted
    h, heads, kv_heads, dim = model.hidden, model.heads // ranks, max(1, model.kv_heads // ranks), model.head_dim
    q, kvw = heads * dim, kv_heads * dim
    kv_bytes = model.kv_bytes(kv) * kv_heads / model.kv_heads
    decodes = [n for r, n in sequences if r == 1]
    prompts = [(r, n) for r, n in sequences if r > 1]
    small = 1 if weights == "fp8" else 2  # bytes of an input of a product
    layer = [product("q, k, v", rows, q + 2 * kvw, h, weights),
             Kernel("rotate, write", "rows", rows * ((2 * q + 2 * kvw) * 2 + kv_bytes))]
    if decodes:
        layer.append(Kernel("attention of decodes", "decode" if kv == "bf16" else "decode8",
                            sum(decodes) * kv_bytes + len(decodes) * q * 4, sum(decodes) * q * 4.0))
    if prompts:
        # A row sees half of its own prompt's rows and everything before them.
        layer.append(Kernel("attention of prompts", "prompt", sum(n for _, n in prompts) * kv_bytes,
                            sum(4.0 * r * (n - r / 2) * q for r, n in prompts)))
    if weights == "fp8":
        layer.append(Kernel("quantise", "rows", rows * q * 3))
    layer.append(product("o", rows, h, q, weights, 4))
    if ranks > 1:
        layer.append(all_reduce(rows, h))
    norm = Kernel("add, norm", "rows", rows * h * (4 + 2 + 2 + small))
    layer.append(norm)
    if model.experts:
        layer += experts(model, rows, weights, ranks)
    else:
        inner = model.inner // ranks
        layer += [product("gate, up", rows, 2 * inner, h, weights),
                  Kernel("gate", "rows", rows * inner * (4 + small)),
                  product("down", rows, h, inner, weights, 4)]
    if ranks > 1:
        layer.append(all_reduce(rows, h))
    layer.append(norm)
    ends = [Kernel("embed", "rows", rows * h * 4), product("vocabulary", wanted, model.vocab // ranks, h, "bf16", 4),
            Kernel("sample", "rows", wanted * model.vocab * 4.0, seconds=0)]
    return layer * model.layers + ends


def experts(model, rows, weights, ranks):
    entries, inner = rows * model.per_token, model.inner // ranks
    touched = model.experts * (1 - (1 - model.per_token / model.experts) ** rows)
    kind = "experts" if entries / model.experts < 16 else "grouped"
    matrix = inner * model.hidden * WIDTH[weights]
    return [product("router", rows, model.experts, model.hidden, "bf16", 4),
            Kernel("route", "rows", rows * model.experts * 4.0),
            Kernel("gate, up of experts", kind, touched * 2 * matrix + entries * (model.hidden + inner) * 2,
                   4.0 * entries * inner * model.hidden),
            Kernel("down of experts", kind, touched * matrix + entries * (inner * 2 + model.hidden * 4),
                   2.0 * entries * inner * model.hidden),
            Kernel("combine", "rows", entries * model.hidden * 4 + rows * model.hidden * 4)]


def all_reduce(rows, hidden):
    return Kernel("all-reduce", "rows", 0,
                  seconds=ALL_REDUCE_US * 1e-6 + rows * hidden * 4 / (ALL_REDUCE_GB_PER_S * 1e9))


def seconds(kernels, device, shares=None):
    return sum(k.cost(device, shares or SHARES) for k in kernels)


def bound(kernels, device):
    """The same if every kernel reached its ceiling, without any latency."""
    return sum(k.bound(device) for k in kernels)


def served(model, device, prompt, output, streams, **step_options):
    """Output tokens a second of so many streams that never stop: each step has one row a stream, half of
    whose answer is there, and the prompts of the streams that replace those at their end."""
    prompt_rows = round(streams * prompt / output)
    sequences = [(1, prompt + output // 2)] * streams
    while prompt_rows > 0:
        sequences.append((min(prompt, prompt_rows), min(prompt, prompt_rows)))
        prompt_rows -= prompt
    kernels = step(model, sequences, wanted=streams, **step_options)
    return streams / seconds(kernels, device), streams / bound(kernels, device)


def predictions(device):
    """Pairs of a name and (predicted, bound), in tokens a second."""
    eight, seventy, moe = (MODELS[n] for n in ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"))
    streams = 960 if device.name == "NVIDIA H200" else 448

    def single(model, **options):
        kernels = step(model, [(1, 384)], **options)
        return 1 / seconds(kernels, device), 1 / bound(kernels, device)

    def decode(model, rows, context, **options):
        kernels = step(model, [(1, context)] * rows, **options)
        return rows / seconds(kernels, device), rows / bound(kernels, device)

    def prefill(model, rows, **options):
        kernels = step(model, [(rows, rows)], **options)
        return rows / seconds(kernels, device), rows / bound(kernels, device)

    fp8 = {"weights": "fp8", "kv": "fp8"}
    return [
        (f"Llama-3.1-8B fp8, 1,000/1,000, {streams} streams", served(eight, device, 1000, 1000, streams, **fp8)),
        (f"Llama-3.1-8B fp8, 128/2,048, {streams} streams", served(eight, device, 128, 2048, streams, **fp8)),
        ("Llama-3.1-8B bf16, one stream", single(eight)),
        ("Llama-3.1-8B fp8, one stream", single(eight, **fp8)),
        ("Llama-3.2-1B bf16, one stream", single(MODELS["llama-3.2-1b"])),
        ("Llama-3.1-8B bf16, prompts of 2,048", prefill(eight, 2048)),
        ("Llama-3.1-70B fp8 on 8, one stream", single(seventy, ranks=8, **fp8)),
        ("Llama-3.1-70B fp8 on 8, 64 streams at 1,500", decode(seventy, 64, 1500, ranks=8, **fp8)),
        ("Qwen3-30B-A3B bf16, one stream", single(moe)),
        ("Qwen3-30B-A3B bf16, 64 streams at 1,500", decode(moe, 64, 1500)),
        ("Qwen3-30B-A3B bf16, prompts of 2,048", prefill(moe, 2048)),
    ]


def tables():
    devices = list(DEVICES.values())
    print("| | " + " | ".join(f"{d.name}, predicted | bound" for d in devices) + " |")
    print("| --- |" + " --- | --- |" * len(devices))
    for rows in zip(*map(predictions, devices)):
        print(f"| {rows[0][0]} | " + " | ".join(f"{p:,.0f} | {b:,.0f}" for _, (p, b) in rows) + " |")


def ceilings_of(folder, otherwise):
    """The device that a folder's results are of, with the ceilings measured there."""
    rates, name = {}, otherwise.name
    for path in (folder / "goals-ceilings.json", folder / "ops_bench.json"):
        for row in map(json.loads, path.read_text().splitlines() if path.is_file() else ()):
            name = row.get("device", name)
            if "op" in row and row.get("group") == "ceilings":
                rates[row["op"]] = row
    known = DEVICES.get(name, otherwise)
    return Device(name, rates.get("read of 4 GiB", {}).get("gb_per_s", known.gb_per_s),
                  rates.get("peak bf16", {}).get("tflop_per_s", known.bf16),
                  rates.get("peak fp8", {}).get("tflop_per_s", known.fp8))


def flag(command, name, otherwise):
    parts = [p.split("=", 1)[1] for p in command.split() if p.startswith(f"--{name}=")]
    return int(parts[-1]) if parts else otherwise


def measured_steps(folder):
    """(name, model, options, kernels, seconds) of each step of step_bench."""
    for path in sorted(folder.glob("*step-*.json")):
        report = json.loads(path.read_text())
        model = MODELS.get(pathlib.Path(report.get("model", "")).name)
        if model is None or report.get("weights") not in WIDTH:
            continue
        command = report.get("command", "")
        context, chunk = flag(command, "context", 128), flag(command, "chunk", 512)
        options = {"weights": report["weights"], "kv": report["kv"]}
        for row in report["steps"]:
            kind, n = row["name"].split("/")
            if kind == "decode":
                kernels = step(model, [(1, context)] * int(n), **options)
            else:
                parts = [(min(chunk, int(n) - at), min(chunk, int(n) - at) + at) for at in range(0, int(n), chunk)]
                kernels = sum((step(model, [p], wanted=int(p == parts[-1]), **options) for p in parts), [])
            yield f"{path.stem} {row['name']}", kernels, row["seconds"]


def compare(folders):
    for folder in map(pathlib.Path, folders):
        device = ceilings_of(folder, DEVICES["NVIDIA H200"])
        print(f"{folder}: {device.name}, {device.gb_per_s:.0f} GB/s, {device.bf16:.0f} and {device.fp8:.0f} TFLOP/s")
        print(f"{'step':<44} {'measured ms':>12} {'predicted':>10} {'ratio':>6} {'of bound':>9}")
        for name, kernels, measured in measured_steps(folder):
            predicted = seconds(kernels, device)
            print(f"{name:<44} {measured * 1e3:12.2f} {predicted * 1e3:10.2f} {measured / predicted:6.2f} "
                  f"{bound(kernels, device) / measured:9.0%}")
        for path in sorted(folder.glob("goals-8b-fp8-*-*.json")):
            report = json.loads(path.read_text())
            if report.get("failed") or not report.get("steady"):
                continue
            prompt, output, streams = (int(report["config"][k]) for k in ("prompt_tokens", "output_tokens", "concurrency"))
            predicted, most = served(MODELS["llama-3.1-8b"], device, prompt, output, streams, weights="fp8", kv="fp8")
            rate = report["steady"]["output_tokens_per_second"]
            print(f"{path.stem}, {streams} streams: {rate:.0f} tokens/s, predicted {predicted:.0f}, "
                  f"ratio {predicted / rate:.2f}, {rate / most:.0%} of the bound {most:.0f}")


def kernels_of(shape, rows, context, weights="bf16", kv="bf16"):
    device = DEVICES["NVIDIA H200"]
    kernels = step(MODELS[shape], [(1, int(context))] * int(rows), weights=weights, kv=kv)
    for name in dict.fromkeys(k.name for k in kernels):
        same = [k for k in kernels if k.name == name]
        cost = same[0].cost(device, SHARES)
        print(f"{name:<24} {len(same):4} x {cost * 1e6:8.2f} us = {len(same) * cost * 1e3:7.3f} ms")
    print(f"{'all':<24} {seconds(kernels, device) * 1e3:.3f} ms, bound {bound(kernels, device) * 1e3:.3f} ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--kernels"] and len(sys.argv) in (5, 7):
        kernels_of(*sys.argv[2:])
    elif len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        compare(sys.argv[1:])
    elif len(sys.argv) == 1:
        tables()
    else:
        sys.exit(__doc__)
