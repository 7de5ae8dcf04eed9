# SPDX-License-Identifier: Apache-2.0
"""Streams that have to match something or call a tool, of every kind, and a demo model that can think."""
import json
import pathlib
import random
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from constraint_test import random_regex, random_schema  # noqa: E402

MODEL = "demo-thinker"
KINDS = ("json_schema", "regex", "choice", "lark", "required", "named", "strict", "auto", "thoughts_json",
         "thoughts_call")
# The tokens that become marks of thoughts: the last two of the vocabulary, of which no other is made.
THINK, END_THINK = 2046, 2047
# So likely that a thought ends after a while, and not at once.
END_BIAS = 7.0
NAMES = ["Mira", "Tom", "Hana", "Ines", "Felix", "Oscar"]
FIND_PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
LARK = """start: fact ("; " fact){0,%d}
fact: NAME " " VERB " " (NUMBER | NAME)
NAME: /[A-Z][a-z]{1,%d}/
VERB: "has" | "sees" | "is %s"
NUMBER: /[0-9]{1,3}/
"""


def write_model(folder):
    """The demo model with two tokens renamed to marks of thoughts, which the prompt opens where
    enable_thinking is set. Returns its folder."""
    model = pathlib.Path(folder) / MODEL
    shutil.copytree(fleet.DEMO_MODEL, model)
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    names = {i: name for name, i in vocabulary.items()}
    for i, mark in ((THINK, "<think>"), (END_THINK, "</think>")):
        old = names[i]
        del vocabulary[old]
        vocabulary[mark] = i
        merges = tokenizer["model"]["merges"]
        pieces = [merge if isinstance(merge, list) else merge.split(" ") for merge in merges]
        assert not any(old in merge for merge in pieces)
        tokenizer["model"]["merges"] = [m for m, p in zip(merges, pieces) if "".join(p) != old]
        tokenizer["added_tokens"].append({"id": i, "content": mark, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
    path.write_text(json.dumps(tokenizer, ensure_ascii=False))
    path = model / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["chat_template"] = config["chat_template"].replace(
        "{{- '<|assistant|>' }}", "{{- '<|assistant|>' }}{{- '<think>' if enable_thinking else '' }}")
    path.write_text(json.dumps(config))
    return model


def make_request(number):
    """The kinds take turns."""
    rng = random.Random(9000 + number)
    kind = KINDS[number % len(KINDS)]
    request = pb.GenerateRequest(request_id=f"{kind}-{number}")
    name = rng.choice(NAMES)
    questions = [f"Where is {name}?", f"Please tell me where {name} is.", f"{name} likes teal. What does {name} like?"]
    request.conversation.messages.add(role="user", content=rng.choice(questions[:2 if kind == "auto" else 3]))
    if kind in ("json_schema", "thoughts_json"):
        request.constraint.json_schema = json.dumps(random_schema(rng))
    elif kind == "regex":
        request.constraint.regex = random_regex(rng)
    elif kind == "choice":
        request.constraint.choice.options.extend(rng.sample(
            ["Mira is in Oslo.", "Mira is ill.", "caf\u00e9", "\u4f60\u597d, Tom", "no", "not at all"], 4))
    elif kind == "lark":
        request.constraint.lark = LARK % (rng.randrange(1, 4), rng.randrange(1, 8), rng.choice(NAMES))
    else:
        add_tools(request.conversation, kind, rng)
    if kind.startswith("thoughts"):
        request.conversation.template_arguments = json.dumps({"enable_thinking": True})
        request.sampling.logit_bias[END_THINK] = END_BIAS
    # Only the prompt begins thoughts.
    request.sampling.logit_bias[THINK] = -100
    request.sampling.seed = rng.randrange(1 << 32)
    request.sampling.temperature = 0 if kind == "auto" else rng.choice([0.7, 1, 1.5])
    request.sampling.frequency_penalty = 0 if kind == "auto" else rng.choice([0, 0, 0.5])
    if number % 7 == 3:
        request.sampling.num_sequences = 2
    request.output.logprobs = number % 3
    request.stopping.max_tokens = 120 if kind.startswith("thoughts") else 70
    return request


def add_tools(conversation, kind, rng):
    if kind in ("auto", "strict"):
        conversation.tools.add(name="find_person", description="Tells where somebody is.",
                               parameters=json.dumps(FIND_PERSON), strict=kind == "strict")
        return
    for name in ("weather", "add numbers", "f")[:rng.randrange(1, 4)]:
        conversation.tools.add(name=name, parameters=json.dumps(random_schema(rng)))
    choice = conversation.tool_choice
    choice.mode = pb.ToolChoice.MODE_REQUIRED
    choice.single_call = rng.random() < 0.5
    if kind == "named":
        choice.name = rng.choice(conversation.tools).name


def said(answer):
    """Everything that has to be equal to an undisturbed run."""
    reasoning, calls = {}, {}
    for delta in (delta for response in answer.responses for delta in response.deltas):
        reasoning[delta.index] = reasoning.get(delta.index, "") + delta.reasoning
        for piece in delta.tool_calls:
            call = calls.setdefault((delta.index, piece.index), ["", "", ""])
            call[0] += piece.id
            call[1] += piece.name
            call[2] += piece.arguments
    return {**answer.comparable(), "reasoning": reasoning, "calls": calls}


def num_tokens(answer):
    return sum(len(ids) for ids in answer.ids.values())
