# SPDX-License-Identifier: Apache-2.0
"""The comparison's requests, and the most that it can gain. Uses no clock and no model."""
import random
import string


def draw_lengths(count, mean, cap, seed):
    """Output lengths: exponential, at least 1, drawn again above the cap."""
    rng = random.Random(f"lengths {seed} {cap}")
    lengths = []
    while len(lengths) < count:
        length = max(1, round(rng.expovariate(1 / mean)))
        if length <= cap:
            lengths.append(length)
    return lengths


def draw_prompt(tokens, seed, shared=0):
    """Letters: a token each for the tokenizer that continuo-make-model writes. The first `shared`
    are those of every other prompt."""
    def letters(seed, count):
        return "".join(random.Random(f"prompt {seed}").choices(string.ascii_lowercase, k=count))

    return letters("shared", shared) + letters(seed, tokens - shared)


def batches(items, size):
    return [items[i:i + size] for i in range(0, len(items), size)]


def static_batches(lengths, size, seconds):
    """Batch after batch of an engine whose full batch has token n after seconds[n - 1], each as
    long as its longest answer; the last one may be smaller and is charged in proportion."""
    groups = batches(lengths, size)
    taken = [seconds[max(group) - 1] * len(group) / size for group in groups]
    return {"requests": len(lengths), "seconds": sum(taken),
            "useful_tokens_per_second": sum(lengths) / sum(taken),
            "of_each_batch": [sum(group) / s for group, s in zip(groups, taken)]}


class StepCosts:
    """The costs of a full batch on an engine: `prompt_s` to prefill its prompts and sample a first
    token each, and a + b·n for the step that samples token n of each. That is from the time that
    the batch takes for 1, `short` and `long` tokens each where its rows begin together, since their
    prompts are in the cache: b is what the longer contexts add, at least 0."""

    def __init__(self, batch, prompt_s, one_s, short, short_s, long, long_s):
        self.batch, self.prompt_s = batch, prompt_s
        first = (short_s - one_s) / (short - 1)  # a step around token (2 + short) / 2
        second = (long_s - short_s) / (long - short)  # around (short + 1 + long) / 2
        self.b = max(0.0, (second - first) / ((long - 1) / 2))
        self.a = first - self.b * (2 + short) / 2

    def steps_s(self, tokens):
        """The time of the steps that sample tokens 2 to `tokens` of each row."""
        n = tokens - 1
        return self.a * n + self.b * (n * (n + 1) / 2 + n)

    def static_s(self, lengths):
        """Batch after batch, each as long as its longest answer; the last one may be smaller and is
        charged in proportion."""
        return sum((self.prompt_s + self.steps_s(max(group))) * len(group) / self.batch
                   for group in batches(lengths, self.batch))

    def continuous_s(self, lengths, unread=1.0):
        """Every row always busy with what somebody wants: the least it can take. `unread`: the part
        of each prompt that no other request has in the cache."""
        return sum((self.prompt_s * unread + self.steps_s(length)) / self.batch
                   for length in lengths)

    def bound(self, lengths, unread=1.0):
        """The largest possible ratio of continuous batching's throughput to static batching's."""
        return self.static_s(lengths) / self.continuous_s(lengths, unread)
