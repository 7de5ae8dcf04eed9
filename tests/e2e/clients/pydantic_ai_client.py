# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai: an agent without tools, its streams, its history, structured output, its errors."""
import asyncio
from typing import Literal

from ask import *
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

SETTINGS = {"temperature": 0, "max_tokens": MAX_TOKENS}


class Answer(BaseModel, extra="forbid"):
    name: Literal["Mira", "Tom"]


def agent(model=MODEL, **settings):
    return Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=BASE_URL, api_key=KEY)),
                 model_settings={**SETTINGS, **settings}, retries=0)


def usage(result):
    return [result.usage.input_tokens, result.usage.output_tokens]


async def main():
    answer = await agent().run(QUESTION)
    async with agent().run_stream(QUESTION) as stream:
        streamed = "".join([t async for t in stream.stream_text(delta=True, debounce_by=None)])
        streamed_usage = usage(stream)
    async with agent(max_tokens=900, extra_body={"ignore_eos": True}).run_stream(QUESTION) as left:
        async for _ in left.stream_text(delta=True, debounce_by=None):
            break
    again = await agent().run(QUESTION, message_history=answer.all_messages())
    assert again.usage.input_tokens > answer.usage.input_tokens
    native = await Agent(agent().model, output_type=NativeOutput(Answer), retries=0,
                         model_settings={**SETTINGS, "max_tokens": 200}).run(QUESTION)
    assert isinstance(native.output, Answer)
    return dict(
        chat=answer.output, streamed=streamed, usage=usage(answer), streamed_usage=streamed_usage,
        stopped=(await agent(stop_sequences=[STOP]).run(QUESTION)).output,
        long=(await agent(LONG_MODEL).run(LONG_QUESTION)).output)


result = asyncio.run(main())
tell(**result, errors={
    "too_long": error_of(agent().run_sync, LONG_QUESTION),
    "model": error_of(agent("another").run_sync, QUESTION),
})
