#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plot of the comparison: useful tokens a second over the cap of answers, a panel for each
prompt length. plot.py RESULT.json > PLOT.svg"""
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 430, 260, 62, 58, 84
# name, key, colour, whether it is a prediction
SERIES = [("continuous", "continuous", "#1f6feb", False),
          ("bound of continuous", "predicted", "#1f6feb", True),
          ("static", "static", "#d29922", False),
          ("Hugging Face, static", "hugging_face", "#8b949e", False)]


def ticks(top):
    """Round values from 0 to about `top`."""
    step = 10 ** math.floor(math.log10(max(top, 1e-9) / 2))
    step = next(step * m for m in (1, 2, 5, 10) if top / (step * m) <= 5)
    return [step * i for i in range(int(top / step) + 1)]


def label(value):
    return f"{value:.3g}"


def panel(cells, x0, y0):
    """Lines of one prompt length."""
    caps = [c["cap"] for c in cells]
    top = 1.08 * max(c[key]["useful_tokens_per_second"]
                     for c in cells for _, key, _, _ in SERIES if key in c)
    low, high = math.log(caps[0]), math.log(max(caps[-1], caps[0] * 2))

    def x(cap):
        return x0 + 18 + (WIDTH - 36) * (math.log(cap) - low) / (high - low)

    def y(value):
        return y0 + HEIGHT * (1 - value / top)

    title = f'{cells[0]["prompt_tokens"]}-token prompts'
    out = [f'<text x="{x0}" y="{y0 - 12}" class="b">{title}</text>']
    for value in ticks(top):
        out.append(f'<path d="M{x0} {y(value):.1f}h{WIDTH}" class="g"/>'
                   f'<text x="{x0 - 6}" y="{y(value) + 4:.1f}" class="e">{label(value)}</text>')
    for c in cells:
        text = f'{c["cap"]}'
        out.append(f'<text x="{x(c["cap"]):.1f}" y="{y0 + HEIGHT + 18}" class="m">{text}</text>')
    for _, key, colour, predicted in SERIES:
        points = [(x(c["cap"]), y(c[key]["useful_tokens_per_second"])) for c in cells if key in c]
        if not points:
            continue
        path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        dash = ' stroke-dasharray="5 4"' if predicted else ""
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not predicted:
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>'
                    for px, py in points]
    for c in cells:
        gain = f'{c["gain"]:.2f}×'
        height = y(c["continuous"]["useful_tokens_per_second"])
        out.append(f'<text x="{x(c["cap"]):.1f}" y="{height - 10:.1f}" class="m b">{gain}</text>')
    middle = x0 + WIDTH / 2
    out.append(f'<text x="{middle}" y="{y0 + HEIGHT + 38}" class="m">longest answer, tokens</text>')
    return out


def draw(result):
    prompts = list(dict.fromkeys(c["prompt_tokens"] for c in result["cells"]))
    width = LEFT + len(prompts) * (WIDTH + GAP) - GAP + 20
    height = TOP + HEIGHT + 88
    requests = result["cells"][0]["requests"]
    title = (f'{result["model"]}, {requests} requests, batches of {result["batch"]}, '
             f'{result["threads"]} threads: useful tokens a '
             f'{"CPU second" if result.get("clock") == "cpu" else "second"}')
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12" fill="#57606a">',
           "<style>.b{font-weight:bold}.m{text-anchor:middle}.e{text-anchor:end}"
           ".g{stroke:#d0d7de;stroke-width:1}</style>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" class="b" font-size="14">{escape(title)}</text>']
    for i, prompt_tokens in enumerate(prompts):
        cells = [c for c in result["cells"] if c["prompt_tokens"] == prompt_tokens]
        out += panel(cells, LEFT + i * (WIDTH + GAP), TOP)
    x = LEFT
    for name, key, colour, predicted in SERIES:
        if not any(key in c for c in result["cells"]):
            continue
        dash = ' stroke-dasharray="5 4"' if predicted else ""
        out.append(f'<path d="M{x} {height - 18}h26" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{x + 32}" y="{height - 14}">{name}</text>')
        x += 60 + 7 * len(name)
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        print(draw(json.load(f)), end="")
