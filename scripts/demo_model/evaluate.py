# SPDX-License-Identifier: Apache-2.0
"""Scores the demo model on its held-out questions, in NumPy, with greedy decoding.

The reference for the tests that ask the same questions through the service: an
answer is right if, stripped, it is one of the row's `accept`. Also a playground:
--ask answers one message.
"""

import argparse
import json
import pathlib

import jinja2
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import tools


def _bf16(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def _fp32(x):
    return np.asarray(x, np.float32)


class DemoModel:
    """Reads a Hugging Face directory of a plain Llama with tied embeddings; answers one prompt at a time."""

    def __init__(self, directory: pathlib.Path, activations: str = "bf16"):
        self.config = json.loads((directory / "config.json").read_text())
        self.weights = {name: value.astype(np.float32)
                        for name, value in load_file(str(directory / "model.safetensors")).items()}
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        settings = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.template = environment.from_string(settings["chat_template"])
        self.bos = settings["bos_token"]
        self.round = _bf16 if activations == "bf16" else _fp32
        half = self.config["head_dim"] // 2
        frequency = self.config["rope_theta"] ** (-np.arange(half, dtype=np.float64) / half)
        angle = np.arange(self.config["max_position_embeddings"])[:, None] * frequency
        self.cos, self.sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def render(self, messages: list, tools: list | None = None) -> list[int]:
        text = self.template.render(messages=messages, tools=tools, bos_token=self.bos, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _norm(self, x, name):
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return self.round(x * scale * self.weights[name])

    def _rotate(self, x, begin):
        half = x.shape[-1] // 2
        cos, sin = (t[begin: begin + x.shape[0], None, :] for t in (self.cos, self.sin))
        a, b = x[..., :half], x[..., half:]
        return self.round(np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1))

    def forward(self, ids, cache: list):
        """Logits after the last of `ids`, which follow what `cache` (one [keys, values] a layer) holds."""
        c, w, r = self.config, self.weights, self.round
        heads, kv_heads, hd = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        begin, tokens = (cache[0][0].shape[0] if cache else 0), len(ids)
        hidden = np.arange(begin + tokens)[None, :] > begin + np.arange(tokens)[:, None]
        x = w["model.embed_tokens.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            h = self._norm(x, at + "input_layernorm.weight")
            q, k, v = (r(h @ w[f"{at}self_attn.{m}_proj.weight"].T).reshape(tokens, -1, hd) for m in "qkv")
            q, k = self._rotate(q, begin), self._rotate(k, begin)
            if begin:
                k, v = np.concatenate([cache[i][0], k]), np.concatenate([cache[i][1], v])
                cache[i] = [k, v]
            else:
                cache.append([k, v])
            q = q.reshape(tokens, kv_heads, heads // kv_heads, hd)
            scores = np.einsum("tkgd,skd->kgts", q, k) * np.float32(hd**-0.5)
            scores = np.where(hidden, -np.inf, scores)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed = r(np.einsum("kgts,skd->tkgd", scores, v)).reshape(tokens, heads * hd)
            x = r(x + r(mixed @ w[at + "self_attn.o_proj.weight"].T))
            h = self._norm(x, at + "post_attention_layernorm.weight")
            gate, up = r(h @ w[at + "mlp.gate_proj.weight"].T), r(h @ w[at + "mlp.up_proj.weight"].T)
            x = r(x + r(r(gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down_proj.weight"].T))
        return self._norm(x[-1], "model.norm.weight") @ w["model.embed_tokens.weight"].T

    def generate(self, ids: list[int], limit: int) -> tuple[str, bool]:
        """The greedy continuation as text, and whether the model ended it by itself."""
        cache, out = [], []
        limit = min(limit, self.config["max_position_embeddings"] - len(ids))
        for _ in range(limit):
            token = int(np.argmax(self.forward(ids, cache)))
            if token == self.config["eos_token_id"]:
                return self.tokenizer.decode(out), True
            out.append(token)
            ids = [token]
        return self.tokenizer.decode(out), False


def score(model: DemoModel, rows: list, verbose: bool) -> dict:
    """The shares of right answers: with facts, without them, and with facts and a tool that is not needed."""
    result = {}
    for key, label, offered in (("messages", "with_facts", None), ("messages_without_facts", "without_facts", None),
                                ("messages", "with_facts_and_tool", [tools.TOOL])):
        right = 0
        for row in rows:
            text, ended = model.generate(model.render(row[key], offered), 64)
            good = ended and text.strip() in row["accept"]
            right += good
            if verbose and not good and key == "messages":
                print(json.dumps({"asked": row[key], "wanted": row["accept"], "said": text}, ensure_ascii=False))
        result[label] = right / len(rows)
    return result


def score_tool(model: DemoModel, rows: list, verbose: bool) -> dict:
    """The shares of right calls, of right answers to their results, and of answers that call though nothing is offered."""
    calls = answers = without = 0
    for row in rows:
        call = json.dumps(row["call"], ensure_ascii=False)
        text, ended = model.generate(model.render(row["messages"], row["tools"]), 96)
        called = ended and text == f"<tool_call>\n{call}\n</tool_call>"
        calls += called
        messages = [*row["messages"], {"role": "assistant", "tool_calls": [{"function": row["call"]}]},
                    {"role": "tool", "content": row["result"]}]
        said, ended = model.generate(model.render(messages, row["tools"]), 64)
        answered = ended and said == row["answer"]
        answers += answered
        not_offered, _ = model.generate(model.render(row["messages"]), 96)
        without += "<" in not_offered
        if verbose and not (called and answered):
            print(json.dumps({"asked": row["messages"], "called": text, "wanted": row["answer"], "said": said},
                             ensure_ascii=False))
    return {"calls": calls / len(rows), "answers": answers / len(rows), "calls_without_tool": without / len(rows)}


def main():
    here = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo-model"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=here)
    parser.add_argument("--questions", type=pathlib.Path, default=here / "heldout.jsonl")
    parser.add_argument("--activations", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--ask", help="answer this message instead of scoring; 'user|answer|user' for more turns")
    parser.add_argument("--text", help="go on with this plain text instead of scoring")
    parser.add_argument("--tool", action="store_true", help="offer the tool with --ask")
    parser.add_argument("--verbose", action="store_true", help="print the wrong answers")
    args = parser.parse_args()
    model = DemoModel(args.model, args.activations)
    if args.ask:
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": part} for i, part in enumerate(args.ask.split("|"))]
        print(model.generate(model.render(messages, [tools.TOOL] if args.tool else None), 400)[0])
        return
    if args.text:
        print(args.text + model.generate(model.tokenizer.encode(args.text).ids, 300)[0])
        return
    rows = [json.loads(line) for line in args.questions.read_text(encoding="utf-8").splitlines()]
    scored = score_tool if "call" in rows[0] else score
    print(json.dumps({"questions": len(rows), "activations": args.activations, **scored(model, rows, args.verbose)}))


if __name__ == "__main__":
    main()
