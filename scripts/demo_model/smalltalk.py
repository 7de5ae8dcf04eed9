# SPDX-License-Identifier: Apache-2.0
"""Greetings, questions about the model itself, counting, echoes, and what it cannot answer."""

import random

ABOUT = ("I am the demo model of Continuo. Tell me some facts about people and ask me about them, "
         "or ask me for a story.")
DO_NOT_KNOW = ("I do not know that. I only know what you tell me: give me some facts about people "
               "and ask me about them, or ask me for a story.")

_GREETINGS = ("Hello", "Hi", "Hey", "Good morning", "Good evening", "Good day", "Hello there", "Hi there",
              "Greetings", "Hello, how are you", "How are you", "Hi, how are you")
_WHO = ("Who are you", "What are you", "What is your name", "What can you do", "How can you help me", "Help",
        "What do you know", "Can you help me", "Introduce yourself", "Please introduce yourself",
        "Tell me about yourself", "What is this", "What should I ask you", "Are you a robot", "Who made you")
_THANKS = ("Thank you", "Thanks", "Thanks a lot", "Thank you very much", "Great", "Well done", "Very good", "Nice")
_BYE = ("Goodbye", "Bye", "Good night", "See you", "See you later", "Bye bye", "Good bye")

_TOPICS = ("the moon", "the sun", "gravity", "history", "music", "football", "computers", "physics", "the weather",
           "money", "the sea", "science", "cooking", "art", "language", "the capital of France", "the president",
           "the internet", "a black hole", "time", "love", "the meaning of life", "mathematics", "trees", "the brain",
           "the largest planet", "electricity", "the news", "politics", "war", "space", "rockets", "a poem", "Python",
           "C++", "a program", "the tallest mountain", "two plus two", "the square root of nine", "a recipe")
_ASKS = ("What is {t}?", "Tell me about {t}.", "Explain {t}.", "What do you think about {t}?", "How does {t} work?",
         "Why is {t} important?", "Who invented {t}?", "When did {t} begin?", "Can you explain {t} to me?",
         "Write about {t}.", "What can you tell me about {t}?", "Is {t} good or bad?", "Do you like {t}?")

_ECHO_WORDS = ("blue boat green river old house seven stars little bird cold night warm bread long road round stone "
               "red door high tower quiet garden silver moon golden leaf small fish tall tree open window soft rain "
               "deep water white horse black cat happy child new day last train first snow").split()


def _vary(rng: random.Random, text: str, marks: tuple[str, ...]) -> str:
    if rng.random() < 0.3:
        text = text[0].lower() + text[1:]
    return text + rng.choice(marks)


def turn(rng: random.Random) -> tuple[str, str]:
    """A user's message without facts, and the answer."""
    kind = rng.random()
    if kind < 0.22:
        return _vary(rng, rng.choice(_GREETINGS), ("", ".", "!", "?", "!")), "Hello! " + ABOUT
    if kind < 0.40:
        return _vary(rng, rng.choice(_WHO), ("", "?", ".", "?")), ABOUT
    if kind < 0.48:
        return _vary(rng, rng.choice(_THANKS), ("", ".", "!")), "You are welcome."
    if kind < 0.55:
        return _vary(rng, rng.choice(_BYE), ("", ".", "!")), "Goodbye! Come back with more facts."
    if kind < 0.72:
        return _vary(rng, rng.choice(_ASKS).format(t=rng.choice(_TOPICS)), ("",)), DO_NOT_KNOW
    if kind < 0.86:
        first = 1 if rng.random() < 0.5 else rng.randint(1, 60)
        last = min(99, first + rng.randint(2, 30))
        numbers = ", ".join(str(i) for i in range(first, last + 1))
        form = rng.choice(("Count from {a} to {b}.", "Please count from {a} to {b}.", "Can you count from {a} to {b}?"))
        return form.format(a=first, b=last), numbers + "."
    words = " ".join(rng.choice(_ECHO_WORDS) for _ in range(rng.randint(1, 9)))
    form = rng.choice(("Say: {w}", "Repeat: {w}", "Please say: {w}", "Repeat after me: {w}", "Say {w}"))
    return form.format(w=words), words
