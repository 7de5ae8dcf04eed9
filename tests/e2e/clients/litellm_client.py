# SPDX-License-Identifier: Apache-2.0
"""litellm: calls, its classes of errors, a router that falls back where the context is too long."""
import asyncio

from ask import *
import litellm

litellm.suppress_debug_info = True
at = dict(model="openai/" + MODEL, api_base=BASE_URL, api_key=KEY, num_retries=0, max_retries=0)
options = dict(temperature=0, max_tokens=MAX_TOKENS, **at)
answer = litellm.completion(messages=MESSAGES, **options)
chunks = list(litellm.completion(messages=MESSAGES, stream=True,
                                 stream_options={"include_usage": True}, **options))
left = litellm.completion(messages=MESSAGES, stream=True, extra_body={"ignore_eos": True},
                          **{**at, "max_tokens": 900})
next(iter(left))
left.completion_stream.close()


def usage(response):
    return [response.usage.prompt_tokens, response.usage.completion_tokens]


def deployment(name, model):
    return {"model_name": name, "litellm_params": {
        "model": "openai/" + model, "api_base": BASE_URL, "api_key": KEY, "temperature": 0}}


router = litellm.Router([deployment("short", MODEL), deployment("long", LONG_MODEL)],
                        context_window_fallbacks=[{"short": ["long"]}], num_retries=0)
fallback = router.completion("short", LONG_MESSAGES, max_tokens=MAX_TOKENS)
assert fallback.model == LONG_MODEL, fallback.model
short = router.completion("short", MESSAGES, max_tokens=MAX_TOKENS)
assert short.model == MODEL, short.model
asynchronous = asyncio.run(litellm.acompletion(messages=MESSAGES, **options))
assert asynchronous.choices[0].message.content == answer.choices[0].message.content

tell(chat=answer.choices[0].message.content,
     streamed="".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
     usage=usage(answer), streamed_usage=usage(chunks[-1]),
     stopped=litellm.completion(messages=MESSAGES, stop=[STOP], **options).choices[0].message.content,
     completion=litellm.text_completion(
         prompt=PROMPT, **{**options, "model": "text-completion-openai/" + MODEL}).choices[0].text,
     long=fallback.choices[0].message.content,
     errors={
         "too_long": error_of(litellm.completion, messages=LONG_MESSAGES, **options),
         "model": error_of(litellm.completion, messages=MESSAGES,
                           **{**options, "model": "openai/another"}),
         "key": error_of(litellm.completion, messages=MESSAGES, **{**options, "api_key": "wrong"}),
         "path": error_of(litellm.completion, messages=MESSAGES,
                          **{**options, "api_base": URL + "/v2"}),
         "member": error_of(litellm.completion, messages=MESSAGES, **{**options, "temperature": -1}),
         "timeout": error_of(litellm.completion, messages=MESSAGES, timeout=0.05, n=8,
                             extra_body={"ignore_eos": True}, **{**at, "max_tokens": 900}),
     })
