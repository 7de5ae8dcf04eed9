# SPDX-License-Identifier: Apache-2.0
"""The requests that chaos tests send: 40 sets of parameters, each the same in every run."""
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from fleet import pb  # noqa: E402

NUM_KINDS = 40
NAMES = ["Mira", "Tom", "Ada", "Leo", "Nora", "Finn", "Ines", "Omar"]
PLACES = ["Oslo", "Lima", "Rome", "Cairo", "Kyoto", "Quito", "Turin", "Perth"]


def make_request(i, chat):
    """The i-th of NUM_KINDS requests; `chat`: the model has a chat template. The first 16 cover
    the ways of sampling and stopping, the others add what is left of the request's fields."""
    rng = random.Random(1000 + i)
    request = pb.GenerateRequest()
    facts = " ".join(f"{n} lives in {p}." for n, p in zip(rng.sample(NAMES, 4),
                                                         rng.sample(PLACES, 4)))
    if i % 3 == 0:
        request.text = facts + " One day"
    elif i % 3 == 1 and chat:
        request.conversation.messages.add(role="user", content=facts + " Tell a story.")
    else:
        request.token_ids.ids.extend(rng.randrange(10, 400) for _ in range(5 + 9 * i))
    request.sampling.seed = 77 + i
    request.sampling.temperature = [0, 0.8, 1.0, 1.3][i % 4]
    request.stopping.max_tokens = 60 + 5 * i
    request.stopping.ignore_eos = True
    if i % 5 == 1:
        request.sampling.num_sequences = 2
    if i % 5 == 2:
        # Text is held back after every letter that could begin a stop string.
        request.stopping.strings.extend([f"{c} Q" for c in "aeinorst."] + ["the end of it"])
        request.stopping.min_tokens = 20
    if i % 5 == 3:
        request.sampling.repetition_penalty = 1.2
        request.sampling.presence_penalty = 0.4
        request.sampling.frequency_penalty = 0.3
    if i % 4 == 2:
        request.output.logprobs = 3
    if i % 8 == 5:
        request.output.prompt_logprobs = 2
    if i % 6 == 4:
        request.sampling.top_k = 40
        request.sampling.top_p = 0.9
        request.sampling.min_p = 0.02
    if i % 7 == 3:
        request.cache.bypass = True
    if i >= 16:
        _add_rarer_fields(request, i, rng)
    return request


def _add_rarer_fields(request, i, rng):
    if i % 6 == 0:
        request.stopping.strings.append("e")
        request.stopping.include_stop = True
        request.stopping.min_tokens = 40
    if i % 6 == 1:
        request.stopping.token_ids.extend(rng.randrange(10, 400) for _ in range(64))
        request.stopping.ignore_eos = False
        request.stopping.min_tokens = 40
    if i % 6 == 2:
        for _ in range(100):
            request.sampling.logit_bias[rng.randrange(10, 400)] = rng.uniform(-5, 5)
    if i % 6 == 3:
        request.sampling.num_sequences = 4
        request.stopping.max_tokens = 60
        request.priority = rng.randrange(-100, 101)
    if i % 6 == 4:
        request.output.progress = True
        request.cache.salt = f"salt {i % 4}"
    if i % 6 == 5:
        request.output.collect = True
        request.exact_only = True
    if i == 39:
        request.stopping.max_tokens = 0
