#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plot of cpu.py: output tokens a second of each server as bars, a group for each weight format
and number of streams. plot.py RESULT.json... > PLOT.svg"""
import json
import statistics
import sys
from xml.sax.saxutils import escape

HEIGHT, LEFT, TOP, BAR, GAP = 240, 56, 58, 46, 34
SERIES = [("continuo", "Continuo", "#1f6feb"), ("llama.cpp", "llama.cpp", "#d29922"),
          ("vllm", "vLLM", "#8b949e")]


def rate(rounds):
    return statistics.median(r["output_tokens_per_second"] for r in rounds)


def groups(results):
    """(caption, [(name, colour, tokens a second)]) of each cell."""
    for result in results:
        for streams, cell in result["cells"].items():
            caption = f'{result["weights"]}, {streams} {"stream" if streams == "1" else "streams"}'
            yield caption, [(name, colour, rate(cell[key]))
                            for key, name, colour in SERIES if key in cell]


def draw(results):
    cells = list(groups(results))
    top = 1.12 * max(value for _, bars in cells for _, _, value in bars)
    width = LEFT + sum(len(bars) * BAR + GAP for _, bars in cells)
    height = TOP + HEIGHT + 74
    first = results[0]
    title = (f'{first["model"]}, {first["threads"]} threads, prompts of {first["prompt_tokens"]}: '
             "output tokens a second over HTTP")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(width, 560)} {height}" '
           'font-family="sans-serif" font-size="12" fill="#57606a">',
           "<style>.b{font-weight:bold}.m{text-anchor:middle}</style>",
           f'<rect width="{max(width, 560)}" height="{height}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" class="b" font-size="14">{escape(title)}</text>',
           f'<path d="M{LEFT} {TOP + HEIGHT}H{width - GAP / 2}" stroke="#d0d7de"/>']
    x = LEFT + GAP / 2
    for caption, bars in cells:
        middle = x + len(bars) * BAR / 2
        out.append(f'<text x="{middle:.1f}" y="{TOP + HEIGHT + 20}" class="m">{caption}</text>')
        for _, colour, value in bars:
            length = HEIGHT * value / top
            y = TOP + HEIGHT - length
            out.append(f'<rect x="{x + 3:.1f}" y="{y:.1f}" width="{BAR - 6}" '
                       f'height="{length:.1f}" fill="{colour}"/>'
                       f'<text x="{x + BAR / 2:.1f}" y="{y - 5:.1f}" class="m b">{value:.3g}</text>')
            x += BAR
        x += GAP
    x = LEFT
    for _, name, colour in SERIES:
        out.append(f'<rect x="{x}" y="{height - 28}" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{x + 18}" y="{height - 18}">{name}</text>')
        x += 46 + 7 * len(name)
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    loaded = []
    for path in sys.argv[1:]:
        with open(path) as f:
            loaded.append(json.load(f))
    print(draw(loaded), end="")
