# SPDX-License-Identifier: Apache-2.0
"""openai-agents over chat completions: an agent with a tool, run and streamed, and one with a class as
its output."""
import asyncio

from answer import *
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI

calls = []


@function_tool
def find_person(name: str) -> str:
    """Tells where somebody is."""
    calls.append(["find_person", {"name": name}])
    return TOOL_RESULT


async def streamed(agent, question):
    """The text that came in pieces, and the whole output."""
    run, text = Runner.run_streamed(agent, question), ""
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    return text, run.final_output


async def main():
    model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(max_retries=0))
    settings = ModelSettings(**OPTIONS)
    seeker = Agent(name="seeker", model=model, model_settings=settings, tools=[find_person])
    answered = (await Runner.run(seeker, TOOL_QUESTION)).final_output
    text, whole = await streamed(seeker, TOOL_QUESTION)
    assert text == whole
    parser = Agent(name="parser", model=model, model_settings=settings, output_type=Answer)
    parsed = (await Runner.run(parser, QUESTION)).final_output
    _, streamed_parsed = await streamed(parser, QUESTION)
    call, streamed_call = calls
    return dict(call=call, answered=answered, streamed_call=streamed_call, streamed_answered=text,
                parsed=parsed.model_dump(), streamed_parsed=streamed_parsed.model_dump())


tell(**asyncio.run(main()), errors={})
