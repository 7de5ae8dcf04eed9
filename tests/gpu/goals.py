#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""goals.py RESULTS...: the results of run.sh beside the goals for one H200.

RESULTS are its folders build/gpu-results, of one call or of several; the last one that has a figure
counts. Ratios hold on any device; figures in tokens a second are goals for an H200 alone. What was not
measured says so. The exit code is 0, whatever is met.
"""
import json
import pathlib
import statistics
import sys

# GB/s of the vendor's datasheets, by the device's own name.
DATASHEET = {"NVIDIA H200": 4800, "NVIDIA H100 80GB HBM3": 3350}
BF16 = 2  # bytes
KEPT_ROUNDS = 3  # of fewer steady ones no verdict is told


def text_of(folders, name):
    for folder in reversed(folders):
        path = folder / name
        if path.is_file() and path.stat().st_size > 0:
            return path.read_text()
    return None


def read(folders, name):
    text = text_of(folders, name)
    return None if text is None else json.loads(text)


def ops_of(folders, *names):
    """The device's name and the measured ops, by name."""
    device, ops = None, {}
    for name in names:
        for row in map(json.loads, (text_of(folders, name) or "").splitlines()):
            device = row.get("device", device)
            if "op" in row:
                ops[row["op"]] = row
            elif row.get("failed"):  # it ended, of any group something may be missing
                ops |= {group: {"op": name, "group": group, "failed": True}
                        for group in {op["group"] for op in ops.values()}}
    return device, ops


def decode_bytes(config):
    """Weights that a step of one row of a dense Llama reads, in bytes of bf16."""
    hidden, heads, layers = (config[k] for k in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    head = config.get("head_dim") or hidden // heads
    attention = 2 * hidden * head * (heads + config["num_key_value_heads"])
    return BF16 * (layers * (attention + 3 * hidden * config["intermediate_size"]) + config["vocab_size"] * hidden)


def line(what, figure, goal, met, more=""):
    verdict = "" if met is None else "met" if met else "missed"
    print(f"{what:<46} {figure:>14}  goal {goal:<12} {verdict:<7} {more}".rstrip())


def not_run(what, goal, why=""):
    line(what, f"not measured{':' if why else ''}", goal, None, why)


def why_not(rows, name):
    """The reason why rows of ops or steps have no verdict, if there is one."""
    for row in rows:
        if row.get("failed"):
            return f"{row[name]} failed"
        if row["steady_rounds"] < KEPT_ROUNDS:
            return f"{row[name]} is unsteady, {row['steady_rounds']} of {row['rounds']} rounds"
    return ""


def share(what, rows, goal, field, rival=None):
    """The least of a field over some ops, of those with a rival if it is named."""
    rows = [row for row in rows if row.get("failed") or field in row and rival in (None, row.get("rival"))]
    why = why_not(rows, "op")
    if why or not rows:
        return not_run(what, f">= {goal:.0%}", why)
    least = min(rows, key=lambda row: row[field])
    line(what, f"{least[field]:.1%}", f">= {goal:.0%}", least[field] >= goal,
         f"{least['op']}, the least of {len(rows)}")


def trouble(report):
    """The reason why a served run has no verdict, if there is one; "" where there was no run."""
    if report is None:
        return ""
    if report.get("failed"):
        return "the bench failed"
    lost = {what: report["requests"][what] for what in ("rejected", "failed") if report["requests"][what]}
    return ", ".join(f"{n} requests {what}" for what, n in lost.items())


def requests_of(report):
    r, t = report["requests"], report["tokens"]
    return (f"{r['ok']} ok, {r['rejected']} rejected, {r['failed']} failed; "
            f"{t['cached_prompt']} of {t['prompt']} prompt tokens cached")


def kernels(folders):
    device, ops = ops_of(folders, "goals-ceilings.json", "ops_bench.json")
    known = DATASHEET.get(device or "")
    what = "reading kernel, of the datasheet's bandwidth"
    rate = ops.get("read of 4 GiB", {}).get("gb_per_s")
    if rate is None:
        not_run(what, ">= 92%", why_not(filter(None, [ops.get("read of 4 GiB")]), "op"))
    elif known is None:
        line(what, f"{rate:.0f} GB/s", ">= 92%", None, f"no datasheet of {device} is known")
    else:
        line(what, f"{rate / known:.1%}", ">= 92%", rate >= 0.92 * known, f"{rate:.0f} of {known} GB/s, {device}")

    def group(name):
        return [row for row in ops.values() if row.get("group") == name]

    share("paged decode attention, of the bandwidth", group("decode"), 0.90, "of_ceiling")
    share("paged decode attention, of dense", group("decode"), 0.97, "of_rival", "dense")
    share("attention of prompts, of the peak", group("prefill"), 0.75, "of_ceiling")
    share("MatMul, of the best of cuBLASLt", group("products"), 0.95, "of_rival", "cuBLASLt")
    return ops.get("read of 4 GiB", {}).get("gb_per_s")


def single(folders, shape, goal, gb_per_s):
    what = f"single stream, {shape} bf16"
    report, config = (read(folders, f"{name}-{shape}.json") for name in ("goals-single", "goals-config"))
    if report is None or trouble(report) or not report["latency_seconds"]["inter_token"]["mean"]:
        return not_run(what, f">= {goal}/s", trouble(report))
    rate = 1 / report["latency_seconds"]["inter_token"]["mean"]
    more = f"{report['throughput']['output_tokens_per_second']:.1f} with prompts"
    if config and "hidden_size" in config and gb_per_s:
        bound = gb_per_s * 1e9 / decode_bytes(config)
        more += f"; {rate / bound:.1%} of {bound:.0f}, its weights at {gb_per_s:.0f} GB/s"
    line(what, f"{rate:.1f}/s", f">= {goal}/s", rate >= goal, f"{more}; {requests_of(report)}")


def throughput(folders, lengths, goal):
    what = f"llama-3.1-8b fp8, {lengths}"
    report = read(folders, f"goals-8b-fp8-{lengths.replace('/', '-')}.json")
    if report is None or trouble(report):
        return not_run(what, f">= {goal}/s", trouble(report))
    whole = report["throughput"]["output_tokens_per_second"]
    steady = report.get("steady", {}).get("output_tokens_per_second", 0)
    rate = steady or whole
    line(what, f"{rate:.0f}/s", f">= {goal}/s", rate >= goal,
         f"{'in between' if steady else 'whole run'}; whole run {whole:.0f}; "
         f"{report.get('config', {}).get('concurrency')} streams; {requests_of(report)}")


def idle(folders):
    what, rows, reports = "device idle between steps, of wall", [], {}
    for folder in folders:
        for path in sorted(folder.glob("*step-*.json")) + sorted(folder.glob("price-*-[12]-*.json")):
            reports[path.stem] = json.loads(path.read_text() or "{}")
    for name, report in reports.items():
        rows += [{"name": name, "failed": True}] if report.get("failed") else [
            {**step, "name": f"{name} {step['name']}"} for step in report.get("steps", []) if "idle" in step]
    why = why_not(rows, "name")
    if why or not rows:
        return not_run(what, "<= 2%", why)
    most = max(rows, key=lambda row: row["idle"])
    line(what, f"{most['idle']:.1%}", "<= 2%", most["idle"] <= 0.02,
         f"{most['name']}, the most of {len(rows)}; overlapped steps, without the scheduler's work")


def gateway(folders):
    what = "lost through the gateway"
    both = {"through": [], "direct": []}
    for n in range(1, 100):
        pair = [read(folders, f"goals-gateway-{n}-{way}.json") for way in both]
        if None in pair:
            break
        if why := trouble(pair[0]) or trouble(pair[1]):
            if n > KEPT_ROUNDS:  # the call's end, say
                break
            return not_run(what, "<= 1%", f"{why}, pair {n}")
        for rates, report in zip(both.values(), pair):
            rates.append(report["throughput"]["output_tokens_per_second"])
    through, direct = both.values()
    if len(through) < KEPT_ROUNDS:
        return not_run(what, "<= 1%")
    lost = 1 - statistics.median(through) / statistics.median(direct)
    line(what, f"{lost:.2%}", "<= 1%", lost <= 0.01,
         f"medians of {len(through)} in turn: {statistics.median(through):.0f} ({min(through):.0f} to "
         f"{max(through):.0f}) and {statistics.median(direct):.0f} ({min(direct):.0f} to {max(direct):.0f})")


def deterministic(folders):
    """The cost of --deterministic: the time of steps and of a served run with it over those
    without."""
    for shape in ("llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b"):
        times = {"as-is": {}, "deterministic": {}}
        for way, steps in times.items():
            for n in (1, 2):
                report = read(folders, f"price-{shape}-{n}-{way}.json") or {}
                for step in report.get("steps", []):
                    steps.setdefault(step["name"], []).append(step["seconds"])
        both = [name for name in times["as-is"] if name in times["deterministic"]]
        ratios = [f"{name} {statistics.mean(times['deterministic'][name]) / statistics.mean(times['as-is'][name]):.3f}"
                  for name in both]
        served = [read(folders, f"price-{shape}-{way}-64.json") for way in times]
        if not any(report is None or trouble(report) for report in served):
            rates = [report["throughput"]["output_tokens_per_second"] for report in served]
            ratios.append(f"served, 64 streams {rates[0] / rates[1]:.3f}")
        if ratios:
            print(f"{'--deterministic, times as long, ' + shape:<46} {', '.join(ratios)}")


def main():
    folders = [pathlib.Path(name) for name in sys.argv[1:]]
    gb_per_s = kernels(folders)
    single(folders, "llama-3.1-8b", 254, gb_per_s)
    single(folders, "llama-3.2-1b", 1500, gb_per_s)
    throughput(folders, "1000/1000", 19500)
    throughput(folders, "128/2048", 28800)
    idle(folders)
    gateway(folders)
    deterministic(folders)


if __name__ == "__main__":
    main()
