# SPDX-License-Identifier: Apache-2.0
"""Formats the results of cpu.py as lines."""
import statistics


def middle(rounds, *keys):
    values = []
    for r in rounds:
        for key in keys:
            r = r[key]
        values.append(r)
    return statistics.median(values)


def table(result):
    lines = [f"{'server':16}{'streams':>8}{'tok/s':>9}{'ratio':>7}{'a CPU s':>9}{'ratio':>7}"
             f"{'TTFT p50':>10}{'p99':>9}{'ITL p50':>9}{'p99':>9}   ms; ratio: ours to it"]
    rates = ("output_tokens_per_second", "output_tokens_per_cpu_second")
    for streams, cell in result["cells"].items():
        for name, rounds in cell.items():
            line = f"{name:16}{streams:>8}"
            for rate in rates:
                value = middle(rounds, rate)
                line += f"{value:9.1f}{middle(cell['continuo'], rate) / value:7.2f}"
            for kind, width in (("time_to_first_token_s", 10), ("inter_token_s", 9)):
                for quantile in ("p50", "p99"):
                    # Answers of one token have nothing between two.
                    known = all(r[kind][quantile] is not None for r in rounds)
                    line += f"{middle(rounds, kind, quantile) * 1e3:{width}.1f}" if known else "-".rjust(width)
                    width = 9
            lines.append(line)
    return "\n".join(lines)
