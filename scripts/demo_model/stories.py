# SPDX-License-Identifier: Apache-2.0
"""Short stories put together from sentences with slots."""

import random

_SLOTS = {
    "time": ("One morning", "One evening", "On a cold day", "On a sunny day", "In the middle of the night",
             "Early in spring", "Late in autumn", "After a long week"),
    "place": ("in a small house by the sea", "in a quiet village", "near a deep forest", "at the edge of a big town",
              "on a green hill", "beside a wide river", "in an old mill", "on a tiny island"),
    "goal": ("the old lighthouse", "the hidden garden", "the market", "the frozen lake", "the castle on the hill",
             "the railway station", "the deep forest", "the little harbour"),
    "thing": ("a silver key", "an old map", "a lost letter", "a red kite", "a wooden box", "a broken clock",
              "a blue lantern", "a tiny bell"),
    "animal": ("a grey cat", "a small dog", "a clever fox", "an old owl", "a friendly horse", "a young deer",
               "a proud goose", "a shy rabbit"),
    "weather": ("it began to rain", "the wind grew strong", "thick fog came up", "the sun came out",
                "snow began to fall", "a storm came over the hills"),
    "meal": ("hot soup", "fresh bread", "apple pie", "pancakes with honey", "a pot of tea", "warm milk"),
    "mood": ("happy", "tired but happy", "very proud", "full of joy", "calm and glad"),
}

_OPEN_ONE = ("Once upon a time there was someone called {a}, who lived {place}.",
             "Once upon a time {a} lived {place}.",
             "There was once a traveller called {a}, who stayed {place}.")
_OPEN_TWO = ("Once upon a time there were two friends called {a} and {b}, who lived {place}.",
             "Once upon a time {a} and {b} lived {place}.",
             "{a} and {b} were old friends and lived {place}.")
_START_ONE = ("{time} {a} found {thing} under the table.", "{time} {a} set out for {goal}.",
              "{time} {a} woke up and wanted to see {goal}.")
_START_TWO = ("{time} {a} found {thing} and showed it to {b}.", "{time} {a} and {b} set out for {goal}.",
              "{time} {b} asked {a} to come along to {goal}.")
_MIDDLE_ONE = ("On the way {weather}, and {a} hid under a tree.", "Soon {a} met {animal}, which had lost its way.",
               "The path was long, but {a} did not turn back.", "There, behind a stone, lay {thing}.",
               "\"How strange,\" said {a}, and looked again.", "{a} gave it some bread, and it followed along.")
_MIDDLE_TWO = ("On the way {weather}, and they hid under a tree.", "Soon they met {animal}, which had lost its way.",
               "\"Are we lost?\" asked {b}.", "\"Do not worry,\" said {a}, \"I know the way.\"",
               "There, behind a stone, lay {thing}.", "{b} laughed, and {a} began to sing.",
               "They shared their bread with it, and it led them on.")
_TURN_ONE = ("At last {a} came to {goal} and sat down.", "When night fell, {a} saw a light far away and walked on.",
             "Then {a} heard a voice that called for help and ran to see.")
_TURN_TWO = ("At last they came to {goal} and sat down.", "When night fell, they saw a light far away and walked on.",
             "Then they heard a voice that called for help and ran to see.")
_END_ONE = ("Back at home there was {meal}, and {a} was {mood}.",
            "In the evening {a} had {meal} and went to bed, {mood}.",
            "From that day on {a} told the story to everyone who would listen.")
_END_TWO = ("Back at home there was {meal}, and both were {mood}.",
            "In the evening they had {meal} and went to bed, {mood}.",
            "From that day on {a} and {b} told the story to everyone who would listen.")


def make(rng: random.Random, names: list[str]) -> str:
    """A story of about 60 to 150 tokens about one or two people."""
    two = len(names) > 1
    pick = lambda one, both: rng.choice(both if two else one)
    middles = rng.sample(_MIDDLE_TWO if two else _MIDDLE_ONE, rng.randint(2, 4))
    sentences = [pick(_OPEN_ONE, _OPEN_TWO), pick(_START_ONE, _START_TWO), *middles,
                 pick(_TURN_ONE, _TURN_TWO), pick(_END_ONE, _END_TWO)]
    out = []
    for sentence in sentences:
        slots = {key: rng.choice(options) for key, options in _SLOTS.items()}
        out.append(sentence.format(a=names[0], b=names[-1], **slots))
    return " ".join(out) + " The end."


REQUESTS_ONE = ("Tell me a story about {a}.", "Tell a story about {a}.", "Write a story about {a}.",
                "Please tell me a story about {a}.", "I would like a story about {a}.")
REQUESTS_TWO = ("Tell me a story about {a} and {b}.", "Tell a story about {a} and {b}.",
                "Write a short story about {a} and {b}.", "Please tell me a story about {a} and {b}.",
                "I would like a story about {a} and {b}.")
REQUESTS_ANY = ("Tell me a story.", "Tell a story.", "Write a story.", "Please tell me a story.",
                "Can you tell me a story?", "I would like to hear a story.")


def request(rng: random.Random, names: list[str]) -> str:
    form = rng.choice(REQUESTS_TWO if len(names) > 1 else REQUESTS_ONE)
    return form.format(a=names[0], b=names[-1])
