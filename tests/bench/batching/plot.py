#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plot of the comparison: improvement over static batching against the longest answer, a panel for each
prompt length. The Hugging Face pipeline is 1x; where a result has none, static batches in the same engine
are. plot.py RESULT.json > PLOT.svg"""
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 430, 260, 62, 74, 84
# name, key, colour, whether it is a prediction
SERIES = [("continuous batching", "continuous", "#1f6feb", False),
          ("what step costs predict for it", "predicted", "#1f6feb", True),
          ("static batches, same engine", "static", "#d29922", False),
          ("static batches, Hugging Face pipeline", "hugging_face", "#6e7781", False)]


def rate(cell, key):
    return cell[key]["useful_tokens_per_second"]


def reference(cells):
    """The series that counts as 1x."""
    return "hugging_face" if all("hugging_face" in cell for cell in cells) else "static"


def panel(cells, one, top, x0, y0):
    """The lines of one prompt length; `top`, the largest improvement of all panels, is the end of the axis."""
    caps = [c["cap"] for c in cells]
    low, high = math.log(caps[0]), math.log(max(caps[-1], caps[0] * 2))
    decades = math.log2(top) + 0.3

    def x(cap):
        return x0 + 18 + (WIDTH - 36) * (math.log(cap) - low) / (high - low)

    def y(times):
        return y0 + HEIGHT * (1 - (math.log2(times) + 0.2) / (decades + 0.2))

    out = [f'<text x="{x0}" y="{y0 - 12}" class="b">{cells[0]["prompt_tokens"]}-token prompts</text>']
    for power in range(int(math.log2(top)) + 1):
        out.append(f'<path d="M{x0} {y(2 ** power):.1f}h{WIDTH}" class="g"/>'
                   f'<text x="{x0 - 6}" y="{y(2 ** power) + 4:.1f}" class="e">{2 ** power}×</text>')
    for _, key, colour, predicted in SERIES:
        points = [(x(c["cap"]), y(rate(c, key) / rate(c, one))) for c in cells if key in c]
        if not points:
            continue
        path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        dash = ' stroke-dasharray="5 4"' if predicted else ""
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not predicted:
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>' for px, py in points]
    # Figures are below the axis, where no line is.
    rows = [("longest answer, tokens", lambda c: str(c["cap"]), "#57606a")]
    if one != "static":
        rows.append(("continuous over the pipeline", lambda c: f'{rate(c, "continuous") / rate(c, one):.1f}×', "#1f6feb"))
    rows.append(("continuous over static, same engine",
                 lambda c: f'{c["gain"]:.2f}×', "#9a6700"))
    for i, (name, text, colour) in enumerate(rows):
        at = y0 + HEIGHT + 20 + 34 * i
        out += [f'<text x="{x(c["cap"]):.1f}" y="{at}" class="m b" fill="{colour}">{text(c)}</text>' for c in cells]
        out.append(f'<text x="{x0 + WIDTH / 2}" y="{at + 14}" class="m" font-size="11">{name}</text>')
    return out


def draw(result):
    cells = result["cells"]
    one = reference(cells)
    top = max(rate(c, key) / rate(c, one) for c in cells for _, key, _, _ in SERIES if key in c)
    prompts = list(dict.fromkeys(c["prompt_tokens"] for c in cells))
    width = LEFT + len(prompts) * (WIDTH + GAP) - GAP + 20
    height = TOP + HEIGHT + 156
    title = "Useful tokens a second, as a multiple of static batches" + (
        " in a Hugging Face pipeline" if one == "hugging_face" else "")
    what = (f'{result["model"]}, {cells[0]["requests"]} requests, batches of {result["batch"]}, '
            f'{result["threads"]} {"thread" if result["threads"] == 1 else "threads"}, '
            f'{"CPU" if result.get("clock") == "cpu" else "wall"} time')
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12" fill="#57606a">',
           "<style>.b{font-weight:bold}.m{text-anchor:middle}.e{text-anchor:end}"
           ".g{stroke:#d0d7de;stroke-width:1}</style>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" class="b" font-size="14">{escape(title)}</text>',
           f'<text x="{LEFT}" y="40">{escape(what)}</text>']
    for i, prompt_tokens in enumerate(prompts):
        out += panel([c for c in cells if c["prompt_tokens"] == prompt_tokens], one, top,
                     LEFT + i * (WIDTH + GAP), TOP)
    x = LEFT
    for name, key, colour, predicted in SERIES:
        if not any(key in c for c in cells):
            continue
        dash = ' stroke-dasharray="5 4"' if predicted else ""
        out.append(f'<path d="M{x} {height - 18}h26" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{x + 32}" y="{height - 14}">{escape(name)}</text>')
        x += 56 + 6.4 * len(name)
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as f:
        print(draw(json.load(f)), end="")
