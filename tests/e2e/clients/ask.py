# SPDX-License-Identifier: Apache-2.0
"""The questions that base.py gives the clients, and the form of their answers."""
import json
import os

URL = os.environ["URL"]
KEY = os.environ["OPENAI_API_KEY"]
BASE_URL = os.environ["OPENAI_BASE_URL"]
_ask = json.loads(os.environ["ASK"])
MODEL, LONG_MODEL = _ask["model"], _ask["long_model"]
QUESTION, LONG_QUESTION, PROMPT = _ask["question"], _ask["long_question"], _ask["prompt"]
TOOL, TOOL_QUESTION, TOOL_RESULT = _ask["tool"], _ask["tool_question"], _ask["tool_result"]
MAX_TOKENS, STOP = _ask["max_tokens"], _ask["stop"]
MESSAGES = [{"role": "user", "content": QUESTION}]
LONG_MESSAGES = [{"role": "user", "content": LONG_QUESTION}]


def error_of(call, *arguments, **keywords):
    """The error that a call has to end with, as text with its class's name."""
    try:
        call(*arguments, **keywords)
    except Exception as error:  # whatever the client makes of it is compared
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def tell(**result):
    print(json.dumps(result))
