# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model on the CPU and writes it as a Hugging Face directory with bf16 weights.

The first training begins with nothing. The second one begins with the weights of the first and mixes
conversations with a tool among the documents, the third one with an average of both. The model is an average
of all three.
"""

import argparse
import functools
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

import tools
from corpus import CURRICULA, CURRICULUM, held_out_questions, held_out_tool_questions, training_chunk
from model import CONFIG, initial_parameters, logits

LENGTHS = (32, 48, 64, 96, 128, 192, 256, 512, 1024)
ANSWER_WEIGHT, TEXT_WEIGHT = 1.0, 0.3  # what a user says is not learned
RECITAL_WEIGHT = 0.02  # of what is not marked
LEARNED_SHARE = 0.6  # of a batch's tokens at most; the time goes by this bound


# -- documents to rows ------------------------------------------------------


class Encoder:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.special = {role: tokenizer.token_to_id(f"<|{role}|>")
                        for role in ("begin", "end", "system", "user", "assistant")}

    def encode_all(self, documents):
        """Yields (ids, weights) of each document; weights[i] is that of predicting ids[i]."""
        documents = list(documents)
        texts = [text for d in documents for text in (
            [part for part, _ in d.parts] or ([d.text] if d.text else [content for _, content in d.messages]))]
        encoded = iter(self.tokenizer.encode_batch(texts, add_special_tokens=False))
        s = self.special
        for d in documents:
            ids, weights = [s["begin"]], [0.0]
            for _, marked in d.parts:
                body = next(encoded).ids
                ids += body
                weights += [ANSWER_WEIGHT if marked else RECITAL_WEIGHT] * len(body)
            if d.parts:
                ids.append(s["end"])
                weights.append(0.0)
            elif d.text:
                body = next(encoded).ids
                ids += body + [s["end"]]
                weights += [TEXT_WEIGHT] * (len(body) + 1)
            for role, _ in d.messages:
                body = next(encoded).ids
                weight = ANSWER_WEIGHT if role == "assistant" else 0.0
                ids += [s[role], *body, s["end"]]
                weights += [0.0] + [weight] * (len(body) + 1)
            yield ids, weights


def positions_of(rng, ids, boundaries, limit, often):
    """0, 1, 2, …, with jumps before messages in the share `often` of documents, so that far apart is seen too."""
    positions = np.arange(len(ids))
    if rng.random() < often:
        starts = [i for i, token in enumerate(ids) if i > 1 and token in boundaries]
        room = limit - len(ids)
        if starts and room > 0:
            for start in starts:
                jump = int(rng.integers(0, room // len(starts) + 1))
                positions[start:] += jump
    return positions


def batches(encoder, seed, tokens_per_step, chunks, curriculum):
    """Yields (ids, positions, weights, share done); rows of a batch have similar lengths."""
    rng = np.random.default_rng(seed)
    boundaries = {encoder.special[r] for r in ("system", "user")}
    for chunk in range(chunks):
        documents = training_chunk(seed, chunk, chunks, curriculum)
        jumps = 0.35 if curriculum is not CURRICULUM or chunk / chunks >= 0.4 else 0.0  # once recall works
        rows = [(ids, w) for ids, w in encoder.encode_all(documents) if len(ids) <= LENGTHS[-1]]
        rows.sort(key=lambda row: len(row[0]))
        steps, at = [], 0
        while at < len(rows):
            # The longest row that the batch will have decides how many fit; both settle in one pass.
            length = next(n for n in LENGTHS if n >= len(rows[at][0]))
            take = [r for r in rows[at: at + max(1, tokens_per_step // length)] if len(r[0]) <= length]
            steps.append((length, take))
            at += len(take)
        rng.shuffle(steps)
        for number, (length, take) in enumerate(steps):
            count = max(1, tokens_per_step // length)
            ids = np.full((count, length), encoder.special["end"], np.int32)
            weights = np.zeros((count, length), np.float32)
            positions = np.zeros((count, length), np.int32)
            for i, (row, w) in enumerate(take):
                ids[i, : len(row)], weights[i, : len(row)] = row, w
                positions[i, : len(row)] = positions_of(rng, row, boundaries, 1024, jumps)
            room = int(LEARNED_SHARE * ids.size)
            learned = np.flatnonzero(weights)
            learned = rng.permutation(learned)[:room] if len(learned) > room else learned
            where = np.ones(room, np.int32)
            where[: len(learned)] = learned
            weight = np.zeros(room, np.float32)
            weight[: len(learned)] = weights.ravel()[learned]
            yield ids, positions, where, weight, (chunk + number / len(steps)) / chunks


# -- optimiser: Muon for the matrices, Adam for embedding and gains ---------


def _orthogonal(g):
    """Newton-Schulz iteration towards the nearest matrix with orthogonal rows or columns."""
    turned = g.shape[0] > g.shape[1]
    x = g.T if turned else g
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if turned else x


def _is_matrix(name):
    return "proj" in name


def update(p, grads, state, rate, step):
    """One optimiser step; `rate` goes from 0 to 1 and back."""
    new_p, new_state = {}, {}
    for name, value in p.items():
        g = grads[name]
        if _is_matrix(name):
            momentum = 0.95 * state[name][0] + g
            direction = _orthogonal(g + 0.95 * momentum)
            scale = 0.02 * max(1.0, value.shape[0] / value.shape[1]) ** 0.5
            new_p[name] = value * (1 - rate * 0.02 * 0.02) - rate * scale * direction
            new_state[name] = (momentum,)
        else:
            m = 0.9 * state[name][0] + 0.1 * g
            v = 0.98 * state[name][1] + 0.02 * g * g
            direction = (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.98**step)) + 1e-9)
            new_p[name] = value - rate * (4e-3 if "embed" in name else 3e-3) * direction
            new_state[name] = (m, v)
    return new_p, new_state


def initial_state(p):
    return {name: tuple(jnp.zeros_like(v) for _ in range(1 if _is_matrix(name) else 2)) for name, v in p.items()}


def loss_of(p, ids, positions, where, weight):
    """The loss at the tokens `where`, each predicted from the ones before it, and that of the answers alone."""
    scores = logits(CONFIG, p, ids, positions, where - 1)
    target = ids.ravel()[where]
    normalizer = jax.nn.logsumexp(scores, axis=-1)
    picked = jnp.take_along_axis(scores, target[..., None], axis=-1)[..., 0]
    each, answers = normalizer - picked, weight == ANSWER_WEIGHT
    answer_loss = jnp.sum(answers * each) / jnp.maximum(jnp.sum(answers), 1.0)
    return jnp.sum(weight * each) / jnp.maximum(jnp.sum(weight), 1.0), answer_loss


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(p, state, ids, positions, where, weight, rate, step):
    (_, loss), grads = jax.value_and_grad(loss_of, has_aux=True)(p, ids, positions, where, weight)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    grads = {name: g * clip for name, g in grads.items()}
    p, state = update(p, grads, state, rate, step)
    return p, state, loss


# -- evaluation while training ----------------------------------------------


@jax.jit
def _predict(p, ids, positions):
    return jnp.argmax(logits(CONFIG, p, ids, positions), axis=-1)


def held_out_conversations(key="messages"):
    return [[(m["role"], m["content"]) for m in q[key]] + [("assistant", q["answer"])]
            for q in held_out_questions(200)]


def held_out_tool_conversations():
    """Each question twice: up to the call, and up to the answer."""
    for q in held_out_tool_questions(200):
        asked = [("system", tools.OFFER), *((m["role"], m["content"]) for m in q["messages"])]
        asked.append(("assistant", tools.call_text(q["call"]["arguments"][tools.PARAMETER])))
        yield asked
        yield [*asked, ("user", tools.result_text(q["result"])), ("assistant", q["answer"])]


def exact_answers(p, encoder, conversations):
    """Share of conversations in which each token of the last message is the most likely one, so greedy text is exact."""
    s, right, rows = encoder.special, [], []
    for conversation in conversations:
        ids = [s["begin"]]
        for role, content in conversation:
            start = len(ids) + 1
            ids += [s[role], *encoder.tokenizer.encode(content, add_special_tokens=False).ids, s["end"]]
        rows.append((ids, start))
    width = 256
    for at in range(0, len(rows), 25):
        ids = np.full((25, width), s["end"], np.int32)
        for i, (row, _) in enumerate(rows[at: at + 25]):
            ids[i, : len(row)] = row
        best = np.asarray(_predict(p, ids, np.broadcast_to(np.arange(width), ids.shape)))
        for i, (row, start) in enumerate(rows[at: at + 25]):
            right.append((best[i, start - 1: len(row) - 1] == ids[i, start: len(row)]).all())
    return np.mean(right)


# -- main -------------------------------------------------------------------


def save(p, directory: pathlib.Path):
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: np.asarray(value).astype(ml_dtypes.bfloat16) for name, value in sorted(p.items())}
    save_file(weights, str(directory / "model.safetensors"), metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (directory / "generation_config.json").write_text(json.dumps(
        {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "do_sample": True,
         "temperature": 0.3, "top_p": 0.95}, indent=2) + "\n")


def average(directories, shares):
    parts = [(share, load_file(str(d / "model.safetensors"))) for d, share in zip(directories, shares, strict=True)]
    return {name: jnp.asarray(sum(share * weights[name].astype(np.float32) for share, weights in parts))
            for name in parts[0][1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=pathlib.Path, required=True,
                        help="holds tokenizer.json already; the model is written here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chunks", type=int, default=32, help="parts of the corpus; the curriculum goes by them. 0 only averages")
    parser.add_argument("--tokens_per_step", type=int, default=3072)
    parser.add_argument("--rate", type=float, default=0.5, help="multiplies the learning rates")
    parser.add_argument("--stop_at", type=float, default=1.0, help="share of the training after which to stop")
    parser.add_argument("--save_every_s", type=float, default=240)
    parser.add_argument("--training", type=int, choices=CURRICULA, default=1, help="which curriculum")
    parser.add_argument("--begin_with", type=pathlib.Path, nargs="+", help="directories with weights")
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0], help="of these weights in their average")
    args = parser.parse_args()

    encoder = Encoder(Tokenizer.from_file(str(args.directory / "tokenizer.json")))
    if args.begin_with:
        p = average(args.begin_with, args.shares)
    else:
        p = initial_parameters(
            CONFIG, args.seed, [encoder.tokenizer.id_to_token(i) for i in range(CONFIG["vocab_size"])])
    curriculum = CURRICULA[args.training]
    state = initial_state(p)
    print("parameters:", sum(v.size for v in p.values()), flush=True)
    start = last = time.monotonic()
    losses, tokens, step = [], 0, 0
    for step, (ids, positions, where, weight, share) in enumerate(
            batches(encoder, args.seed, args.tokens_per_step, args.chunks, curriculum), start=1):
        rate = args.rate * min(1.0, step / 100) * min(1.0, (1 - share) / 0.4 + 0.01)
        if share > args.stop_at:
            break
        p, state, loss = train_step(p, state, ids, positions, where, weight, rate, step)
        losses.append(loss)
        tokens += int((weight > 0).sum())
        if step % 50 == 0:
            elapsed = time.monotonic() - start
            print(f"step {step} share {share:.3f} answer loss {np.mean([float(x) for x in losses]):.4f} "
                  f"{tokens / elapsed:.0f} tokens/s {elapsed:.0f} s, {time.process_time():.0f} s of CPU", flush=True)
            losses = []
        if time.monotonic() - last > args.save_every_s:
            save(p, args.directory)
            print(f"held-out exact {exact_answers(p, encoder, held_out_conversations()):.3f}, with the tool "
                  f"{exact_answers(p, encoder, held_out_tool_conversations()):.3f}", flush=True)
            last = time.monotonic()
    save(p, args.directory)
    rounded = {name: jnp.asarray(np.asarray(v).astype(ml_dtypes.bfloat16).astype(np.float32)) for name, v in p.items()}
    without = held_out_conversations("messages_without_facts")
    print(f"done: {tokens} tokens, {step} steps, {time.monotonic() - start:.0f} s, {time.process_time():.0f} s of CPU, "
          f"held-out exact {exact_answers(rounded, encoder, held_out_conversations()):.3f}, without facts "
          f"{exact_answers(rounded, encoder, without):.3f}, with the tool "
          f"{exact_answers(rounded, encoder, held_out_tool_conversations()):.3f}", flush=True)


if __name__ == "__main__":
    main()
