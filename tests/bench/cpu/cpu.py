#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Continuo, llama.cpp and vLLM on the CPU, as servers, on the same weights: the same client
(load.py) sends the same requests to each over HTTP, and `continuo bench` to ours over gRPC.

Servers take turns, round after round; those that wait are stopped (SIGSTOP), so none disturbs
another. Prompts of --prompt tokens, answers of exponential length, every answer complete (checked
by the server's own count). Before that the most likely next token of some prompts is compared,
which shows that it is the same model. llama.cpp reads a GGUF file that gguf.py writes.

With --gguf Continuo and llama.cpp serve one GGUF file: a type such as Q4_K_M, which llama-quantize
makes of the shape's weights, or a file of a real model. Ours then computes with the file's integers
unless --weights says otherwise.

Beside what clients see there is CPU time, all of a server's processes together, which with
--threads=1 (no thread waits in a loop) tells something on a machine that others use as well.

Ours runs with --speculation=off: answers of random weights repeat themselves, which prompt lookup
would guess more often than real ones.

Prints a table with ratios, writes JSON, and ends non-zero where a peer could not be run or a
request failed. tests/bench/peers/setup.sh installs the peers.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
sys.path.insert(0, str(ROOT / "tests/bench/batching"))
import fleet  # noqa: E402
from batching import make_model  # noqa: E402
from gguf import write_gguf  # noqa: E402
from load import Plan, drive, first_texts  # noqa: E402
from table import table  # noqa: E402

OUT = ROOT / "build/bench"
LLAMA, VLLM = OUT / "llama", OUT / "vllm"
QUANTIZED = {"int8": "Q8_0", "int4": "Q4_0"}  # llama.cpp's of about the same size


class Server:
    """Processes that serve together, each the leader of a group; running only inside `with`."""

    def __init__(self, name, address, groups, model="m"):
        self.name, self.address, self.groups, self.model = name, address, groups, model

    def signal(self, number):
        for process in self.groups:
            os.killpg(process.pid, number)

    def __enter__(self):
        self.signal(signal.SIGCONT)
        return self

    def __exit__(self, *_):
        self.signal(signal.SIGSTOP)

    def used(self):
        """CPU seconds and resident MiB of all its processes."""
        groups = {p.pid for p in self.groups}
        ticks = pages = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            if int(fields[2]) in groups:
                ticks += int(fields[11]) + int(fields[12])
                pages += int(fields[21])
        return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def measure(self, load):
        """The report of `load`, with CPU and memory of the server."""
        with self:
            before, _ = self.used()
            report = load()
            after, report["resident_mib"] = self.used()
        report["cpu_s"] = after - before
        report["output_tokens_per_cpu_second"] = report["output_tokens"] / report["cpu_s"]
        return report

    def end(self):
        for process in self.groups:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def spawn(name, arguments, env=None):
    """A process that leads a group, its output in a file."""
    with open(OUT / f"cpu-{name}.log", "wb") as log:
        return subprocess.Popen([str(a) for a in arguments], stdin=subprocess.DEVNULL, stdout=log,
                                stderr=log, start_new_session=True,
                                env={**os.environ, **(env or {})})


def wait_until_ready(name, address, process, seconds=540):
    """Waits until it answers a completion. vLLM compiles at its first start with a model, for
    minutes."""
    until = time.monotonic() + seconds
    while True:
        try:
            return first_texts(address, "m", [[100, 101, 102]])
        except (OSError, RuntimeError, ValueError, IndexError) as error:
            if process.poll() is not None or time.monotonic() > until:
                text = (OUT / f"cpu-{name}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{name} could not be run: {error!r}\n{text}") from error
        time.sleep(0.5)  # asks another process


def start_ours(model, weights, threads, streams, context, kv_dtype="auto"):
    port, gateway_port, http_port = (fleet.free_port() for _ in range(3))
    worker = spawn("worker", [fleet.BIN / "continuo-worker", f"--model={model}", "--model_name=m",
                              f"--listen=127.0.0.1:{port}", "--metrics_listen=127.0.0.1:0",
                              f"--threads={threads}", f"--weights={weights}",
                              f"--kv_dtype={kv_dtype}", "--speculation=off",
                              f"--max_context_tokens={context}",
                              f"--kv_blocks={streams * context // 16}"])
    gateway = spawn("gateway", [fleet.BIN / "continuo-gateway", f"--workers=127.0.0.1:{port}",
                                f"--listen=127.0.0.1:{gateway_port}",
                                "--metrics_listen=127.0.0.1:0",
                                f"--http_listen=127.0.0.1:{http_port}"])
    server = Server("continuo", f"127.0.0.1:{http_port}", [worker, gateway])
    server.grpc = f"127.0.0.1:{gateway_port}"
    return server


def quantised_file(model, kind):
    """The GGUF file in llama.cpp's folder of Debian's unstable suite with the model's weights; `kind` is a
    type of llama-quantize, or None for bf16."""
    if not (LLAMA / "usr/bin/llama-server").exists():
        raise RuntimeError("llama.cpp is not there: tests/bench/peers/setup.sh llama.cpp")
    plain = LLAMA / f"{model.name}.gguf"
    if not plain.exists():
        write_gguf(model, plain)
    if kind is None:
        return plain
    quantised = LLAMA / f"{model.name}-{kind}.gguf"
    if not quantised.exists():
        # Random weights have no matrix of importance, which some types ask for.
        subprocess.run(["chroot", LLAMA, "/usr/bin/llama-quantize", f"/{plain.name}", f"/{quantised.name}", kind],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return quantised


def shared_file(model, gguf):
    """The GGUF file that both servers read."""
    if not gguf.endswith(".gguf"):
        return quantised_file(model, gguf)
    file = LLAMA / pathlib.Path(gguf).name
    if not file.exists():
        shutil.copyfile(gguf, file)
    return file


def vocabulary_of(model):
    """Ids below this number are given to the servers as prompts."""
    described = subprocess.run([fleet.BIN / "continuo-worker", f"--model={model}", "--describe=json"],
                               check=True, capture_output=True, text=True)
    return json.loads(described.stdout)["model"]["vocabulary"] * 9 // 10


def start_llama(model, weights, threads, streams, context):
    """Starts llama.cpp in its folder, which contains the GGUF file."""
    name = model.name if model.suffix == ".gguf" else quantised_file(model, QUANTIZED.get(weights)).name
    port = fleet.free_port()
    process = spawn("llama.cpp", [
        "chroot", LLAMA, "/usr/bin/llama-server", "-m", f"/{name}", "--host", "127.0.0.1", "--port",
        port, "-t", threads, "-tb", threads, "-np", streams, "-c", context * streams, "--no-webui",
        "--no-cache-prompt"])
    return Server("llama.cpp", f"127.0.0.1:{port}", [process])


def start_vllm(model, _weights, threads, streams, context):
    if not (VLLM / "bin/vllm").exists():
        raise RuntimeError("vLLM is not there: tests/bench/peers/setup.sh vllm")
    port = fleet.free_port()
    config = json.loads((model / "config.json").read_text())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    kv_bytes = (config["num_hidden_layers"] * config["num_key_value_heads"] * head_dim *
                4 * streams * context)  # as much as the others have
    kv_gib = max(1, -(-kv_bytes // 2**30))
    cores = sorted(os.sched_getaffinity(0))[:threads]
    openmp = next(VLLM.glob("lib/libiomp5.so"), "")  # as vLLM's guide has it
    process = spawn("vllm", [
        VLLM / "bin/vllm", "serve", model, "--served-model-name", "m", "--host", "127.0.0.1",
        "--port", port, "--dtype", "bfloat16", "--max-model-len", context, "--max-num-seqs",
        max(streams, 16), "--no-enable-prefix-caching"],
        {"VLLM_CPU_KVCACHE_SPACE": str(kv_gib), "HF_HUB_OFFLINE": "1", "LD_PRELOAD": str(openmp),
         "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "7200",  # it is stopped while others are measured
         "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores))})
    return Server("vllm", f"127.0.0.1:{port}", [process])


STARTERS = {"continuo": start_ours, "llama.cpp": start_llama, "vllm": start_vllm}


def over_grpc(server, plan_flags, streams, requests):
    """Runs the same kind of load with our own client."""
    result = subprocess.run(
        [fleet.BIN / "continuo", "bench", f"--server={server.grpc}", f"--concurrency={streams}",
         f"--requests={requests}", "--bypass_cache", "--json=-", *plan_flags],
        capture_output=True, text=True, timeout=600)
    if result.returncode != 0:
        raise RuntimeError(f"continuo bench: {result.stdout}{result.stderr}")
    report = json.loads(result.stdout)
    latency = report["latency_seconds"]
    return {"output_tokens": report["tokens"]["output"],
            "output_tokens_per_second": report["throughput"]["output_tokens_per_second"],
            "time_to_first_token_s": {k: latency["time_to_first_token"][k] for k in ("p50", "p99")},
            "inter_token_s": {k: latency["inter_token"][k] for k in ("p50", "p99")}}


def agree(servers, vocabulary):
    """The number of prompts whose most likely next token is the same as ours."""
    prompts = [item[0] for item in Plan(12, 24, 1, "agree", vocabulary).items]
    texts = {}
    for server in servers:
        with server:
            texts[server.name] = first_texts(server.address, server.model, prompts)
    return {name: sum(a == b for a, b in zip(other, texts["continuo"]))
            for name, other in texts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="qwen3-0.6b",
                        help="of Qwen3, or small, an eighth of it (%(default)s)")
    parser.add_argument("--gguf", help="a type of llama-quantize, or a GGUF file, which both servers read")
    parser.add_argument("--weights", choices=["bf16", "int8", "int4", "stored", "fp32"],
                        help="bf16; with --gguf stored. llama.cpp: BF16, Q8_0, Q4_0, or the file; vLLM is measured in "
                             "bf16 alone")
    parser.add_argument("--kv_dtype", default="auto",
                        help="of Continuo; llama.cpp keeps fp16, vLLM bf16 (%(default)s)")
    parser.add_argument("--streams", default="1,16", help="at once (%(default)s)")
    parser.add_argument("--requests", type=int, default=3, help="a stream (%(default)s)")
    parser.add_argument("--prompt", type=int, default=128, help="tokens (%(default)s)")
    parser.add_argument("--output", type=int, default=96, help="tokens, the mean (%(default)s)")
    parser.add_argument("--context", type=int, default=2048,
                        help="tokens a request may have; servers reserve it (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--servers", default="continuo,llama.cpp,vllm")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.prompt + 8 * arguments.output > arguments.context:
        parser.error("--context holds no prompt with the longest answer, 8 * --output")
    streams = [int(s) for s in arguments.streams.split(",")]
    arguments.weights = arguments.weights or ("stored" if arguments.gguf else "bf16")
    if arguments.weights in ("stored", "fp32") and not arguments.gguf:
        parser.error(f"--weights={arguments.weights} is for --gguf")
    names = [n for n in arguments.servers.split(",")
             if n != "vllm" or (arguments.weights == "bf16" and not arguments.gguf)]
    if names[:1] != ["continuo"]:
        parser.error("--servers begins with continuo")
    what = pathlib.Path(arguments.gguf).stem if arguments.gguf else arguments.shape
    out = arguments.json or OUT / f"cpu-{what}-{arguments.weights}.json"

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end with this
    if arguments.gguf:
        is_file = arguments.gguf.endswith(".gguf")
        model = shared_file(None if is_file else make_model(arguments.shape), arguments.gguf)
    else:
        model = make_model(arguments.shape)
    vocabulary = vocabulary_of(model)
    servers, failed = [], []
    try:
        for name in names:
            try:
                more = {"kv_dtype": arguments.kv_dtype} if name == "continuo" else {}
                server = STARTERS[name](model, arguments.weights, arguments.threads, max(streams),
                                        arguments.context, **more)
                servers.append(server)
                wait_until_ready(name if name != "continuo" else "gateway", server.address,
                                 server.groups[-1])
                server.signal(signal.SIGSTOP)
                print(f"  {name} is ready", flush=True)
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                failed.append(f"{name}: {error}")
                if name == "continuo":
                    raise
                servers = [s for s in servers if s.name != name or s.end()]
        result = {"model": model.name, "weights": arguments.weights,
                  "kv_dtype": arguments.kv_dtype, "threads": arguments.threads,
                  "prompt_tokens": arguments.prompt, "output_tokens_mean": arguments.output,
                  "same_first_token_of_12": agree(servers, vocabulary), "cells": {}}
        print(f"  same most likely token of 12: {result['same_first_token_of_12']}", flush=True)
        failed += [f"{name}: another model" for name, same in
                   result["same_first_token_of_12"].items() if same < 6]
        for count in streams:
            cell = result["cells"][str(count)] = {s.name: [] for s in servers}
            cell["continuo, gRPC"] = []
            for number in range(arguments.rounds):
                plan = Plan(count * arguments.requests, arguments.prompt, arguments.output,
                            f"{count} {number}", vocabulary)
                for server in servers:
                    cell[server.name].append(server.measure(
                        lambda s=server: drive(s.address, s.model, plan.items, count)))
                cell["continuo, gRPC"].append(servers[0].measure(lambda: over_grpc(
                    servers[0], [f"--prompt_tokens={arguments.prompt}", f"--seed={number}",
                                 f"--output_tokens=exponential:{arguments.output}"],
                    count, count * arguments.requests)))
            print(table({"cells": {str(count): cell}}), flush=True)
    finally:
        for server in servers:
            server.end()
    result["failed"] = failed
    out.write_text(json.dumps(result, indent=1))
    print(table(result))
    if failed:
        sys.exit("cpu: " + "\n".join(failed))


if __name__ == "__main__":
    main()
