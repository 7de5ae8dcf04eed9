# SPDX-License-Identifier: Apache-2.0
"""openai-python, of another major version than in openai_sdk_test.py, asynchronous too."""
import asyncio

from ask import *
import openai

client = openai.OpenAI(max_retries=0)
options = dict(model=MODEL, temperature=0, max_tokens=MAX_TOKENS)
create = client.chat.completions.create
answer = create(messages=MESSAGES, **options)
chunks = list(create(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options))
with client.chat.completions.stream(messages=MESSAGES, **options) as stream:
    helper = stream.get_final_completion().choices[0].message.content
assert helper == answer.choices[0].message.content
left = create(messages=MESSAGES, stream=True, extra_body={"ignore_eos": True},
              **{**options, "max_tokens": 900})
next(iter(left))
left.close()


async def cancelled():
    """A task is cancelled while it reads its answer; the client goes on."""
    begun = asyncio.Event()

    async def read(client):
        async for _ in await client.chat.completions.create(
                messages=MESSAGES, stream=True, extra_body={"ignore_eos": True},
                **{**options, "max_tokens": 900}):
            begun.set()

    async with openai.AsyncOpenAI(max_retries=0) as client:
        task = asyncio.ensure_future(read(client))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        answer = await client.chat.completions.create(messages=MESSAGES, **options)
        return answer.choices[0].message.content


assert asyncio.run(cancelled()) == helper


def usage(response):
    return [response.usage.prompt_tokens, response.usage.completion_tokens]


tell(chat=answer.choices[0].message.content,
     streamed="".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
     usage=usage(answer), streamed_usage=usage(chunks[-1]),
     stopped=create(messages=MESSAGES, stop=STOP, **options).choices[0].message.content,
     completion=client.completions.create(prompt=PROMPT, **options).choices[0].text,
     long=create(messages=LONG_MESSAGES, **{**options, "model": LONG_MODEL}).choices[0].message.content,
     models=sorted(m.id for m in client.models.list()),
     errors={
         "too_long": error_of(create, messages=LONG_MESSAGES, **options),
         "model": error_of(create, messages=MESSAGES, **{**options, "model": "another"}),
         "key": error_of(client.with_options(api_key="wrong").models.list),
         "path": error_of(client.moderations.create, input=QUESTION),
         "timeout": error_of(client.with_options(timeout=0.05).completions.create, prompt=PROMPT,
                             n=8, extra_body={"ignore_eos": True}, **{**options, "max_tokens": 900}),
     })
