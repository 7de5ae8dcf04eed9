# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai: an agent with a tool, run and streamed; structured output by schema and by a call."""
import asyncio

from answer import *
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=KEY))
calls = []


def agent(**more):
    return Agent(model, model_settings=dict(OPTIONS), retries=0, **more)


def find_person(name: str) -> str:
    """Tells where somebody is."""
    calls.append(["find_person", {"name": name}])
    return TOOL_RESULT


async def main():
    answered = (await agent(tools=[find_person]).run(TOOL_QUESTION)).output
    async with agent(tools=[find_person]).run_stream(TOOL_QUESTION) as stream:
        streamed = "".join([t async for t in stream.stream_text(delta=True, debounce_by=None)])
    native = agent(output_type=NativeOutput(Answer))
    parsed = (await native.run(QUESTION)).output
    async with native.run_stream(QUESTION) as stream:
        streamed_parsed = await stream.get_output()
    by_call = (await agent(output_type=ToolOutput(Answer)).run(QUESTION)).output
    assert isinstance(by_call, Answer)
    call, streamed_call = calls
    return dict(call=call, answered=answered, streamed_call=streamed_call, streamed_answered=streamed,
                parsed=parsed.model_dump(), streamed_parsed=streamed_parsed.model_dump())


tell(**asyncio.run(main()), errors={})
