# SPDX-License-Identifier: Apache-2.0
"""litellm's Responses, and its completions, which speak Messages to a model of that provider: whole and streamed,
with errors; of the latter a tool's loop. (Its own Messages need the packages of its proxy.)"""
import json
import os

from ask import *
import litellm

litellm.suppress_debug_info = True
IS_MESSAGES = os.environ["API"] == "messages"
PROVIDER, BASE = ("anthropic", URL) if IS_MESSAGES else ("openai", BASE_URL)
at = dict(model=f"{PROVIDER}/{MODEL}", api_base=BASE, api_key=KEY, num_retries=0, max_retries=0, temperature=0)


def complete(content, **more):
    return litellm.completion(messages=content, **{**at, "max_tokens": MAX_TOKENS, **more})


def messages(stream=False, **more):
    """The text and the usage of a completion."""
    if not stream:
        answer = complete(MESSAGES, **more)
        text, usage = answer.choices[0].message.content, answer.usage
    else:
        chunks = list(complete(MESSAGES, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        usage = chunks[-1].usage
    return text, [usage.prompt_tokens, usage.completion_tokens]


def responses(stream=False, **more):
    answer = litellm.responses(input=QUESTION, max_output_tokens=MAX_TOKENS, stream=stream, **{**at, **more})
    text = None
    if stream:
        text = ""
        for event in answer:
            if event.type == "response.output_text.delta":
                text += event.delta
            last = event
        answer = last.response
    whole = "".join(part.text for item in answer.output for part in item.content)
    assert text in (None, whole), (text, whole)
    return whole, [answer.usage.input_tokens, answer.usage.output_tokens]


ask_once = messages if IS_MESSAGES else responses
chat, usage = ask_once()
streamed, streamed_usage = ask_once(stream=True)
told = dict(chat=chat, usage=usage, streamed=streamed, streamed_usage=streamed_usage)
if IS_MESSAGES:
    question = [{"role": "user", "content": TOOL_QUESTION}]
    called = complete(question, tools=[TOOL], max_tokens=100).choices[0].message
    (call,) = called.tool_calls
    told["call"] = [call.function.name, json.loads(call.function.arguments)]
    told["answered"] = complete(
        [*question, called.model_dump(exclude_none=True),
         {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT}],
        tools=[TOOL]).choices[0].message.content

tell(**told, errors={
    "model": error_of(ask_once, model=PROVIDER + "/another"),
    "key": error_of(ask_once, api_key="wrong"),
})
