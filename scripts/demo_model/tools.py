# SPDX-License-Identifier: Apache-2.0
"""Conversations in which a tool is offered, and called where somebody is to be found.

The tool is `find_person(name)`; its result is a place, which the answer repeats. That
somebody is in a place is a triple like any other fact, and the name of a call is one
with an empty value: so there are names for which no training document has a call.
"""

import json
import random

from words import BY_KEY

NAME, PARAMETER = "find_person", "name"
TOOL = {"type": "function", "function": {
    "name": NAME, "description": "Tells where somebody is.",
    "parameters": {"type": "object", "properties": {PARAMETER: {"type": "string"}}, "required": [PARAMETER]}}}
CALLED, PLACE = "called", "place"  # relations of triples

_QUESTIONS = ("Where is {n}?", "Where is {n} now?", "Where can I find {n}?", "Do you know where {n} is?",
              "Please tell me where {n} is.", "Can you find {n}?", "Find {n}.", "Please find {n}.")
_ROOMS = ("the garden", "the kitchen", "the library", "the office", "the market", "the harbour", "the station",
          "the school", "the museum", "the park", "the hotel", "the church", "the tower", "the cellar")
_ERRORS = ("error: not allowed", "error: exit status 1", "error: not found", "error: unknown person",
           "error: no end within 30s", "error: nobody knows", "not found", "unknown")
# Tools that are offered beside it, or alone, and are never called.
_OTHERS = ("weather(city)", "time()", "search(text)", "play(song)", "send(name, text)", "add(a, b)")


def offer(*tools: str) -> str:
    """The message with which the chat template offers tools."""
    return "Tools: " + ", ".join(tools)


OFFER = offer(f"{NAME}({PARAMETER})")


def call_text(name: str) -> str:
    """A call as the chat template writes it."""
    call = json.dumps({"name": NAME, "arguments": {PARAMETER: name}}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def result_text(result: str) -> str:
    """A result as the chat template writes it."""
    return "Result: " + result


def answer_text(name: str, place: str) -> str:
    return f"{name} is in {place}."


def question(rng: random.Random, name: str) -> str:
    return rng.choice(_QUESTIONS).format(n=name)


def without_tool(rng: random.Random, name: str) -> list:
    """The same question where nothing can find anybody."""
    return [("user", question(rng, name)), ("assistant", f"I was not told where {name} is.")]


def some_place(rng: random.Random, made_up) -> str:
    draw = rng.random()
    if draw < 0.2:
        return made_up(rng)
    return rng.choice(_ROOMS) if draw < 0.4 else rng.choice(BY_KEY["city"].values)


def turn(rng: random.Random, name: str, place: str | None, lead: str = "") -> list:
    """Question, call, result and answer; without a place the tool fails."""
    result = place or rng.choice(_ERRORS)
    answer = answer_text(name, place) if place else f"I could not find {name}."
    return [("user", lead + question(rng, name)), ("assistant", call_text(name)),
            ("user", result_text(result)), ("assistant", answer)]


def offers(rng: random.Random) -> tuple[str, bool]:
    """Returns what is offered, and whether the tool is among it."""
    draw, other = rng.random(), rng.choice(_OTHERS)
    own = f"{NAME}({PARAMETER})"
    if draw < 0.80:
        return OFFER, True
    if draw < 0.94:
        return offer(*rng.sample((own, other), 2)), True
    return offer(other), False
