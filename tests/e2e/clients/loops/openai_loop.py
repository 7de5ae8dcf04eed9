# SPDX-License-Identifier: Apache-2.0
"""openai-python: the loop by hand and streamed, arguments and answers parsed into pydantic's classes."""
import json

from answer import *
import openai

client = openai.OpenAI(max_retries=0)
chat = client.chat.completions
options = dict(model=MODEL, **OPTIONS)
asked = {"role": "user", "content": TOOL_QUESTION}


def result_of(call):
    return {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT}


first = chat.create(messages=[asked], tools=[TOOL], **options).choices[0]
assert first.finish_reason == "tool_calls"
(call,) = first.message.tool_calls
second = chat.create(messages=[asked, first.message, result_of(call)], tools=[TOOL], **options).choices[0]
assert second.finish_reason == "stop"

# A strict tool, whose arguments the client parses while they come.
strict = [openai.pydantic_function_tool(FindPerson, name="find_person")]
pieces = ""
with chat.stream(messages=[asked], tools=strict, **options) as stream:
    for event in stream:
        if event.type == "tool_calls.function.arguments.delta":
            pieces += event.arguments_delta
    message = stream.get_final_completion().choices[0].message
(streamed,) = message.tool_calls
assert json.loads(pieces) == json.loads(streamed.function.arguments)
assert isinstance(streamed.function.parsed_arguments, FindPerson)
text = ""
for chunk in chat.create(messages=[asked, message, result_of(streamed)], tools=strict, stream=True, **options):
    text += chunk.choices[0].delta.content or ""

# A call that has to come, of any tool and of this one.
for choice in ("required", {"type": "function", "function": {"name": "find_person"}}):
    must = chat.create(messages=[asked], tools=[TOOL], tool_choice=choice, parallel_tool_calls=False, **options)
    (needed,) = must.choices[0].message.tool_calls
    assert needed.function.name == "find_person" and "name" in json.loads(needed.function.arguments)
none = chat.create(messages=[asked], tools=[TOOL], tool_choice="none", **options).choices[0]
assert none.message.tool_calls is None and none.message.content

parsed = chat.parse(messages=MESSAGES, response_format=Answer, **options).choices[0].message.parsed
with chat.stream(messages=MESSAGES, response_format=Answer, **options) as stream:
    streamed_parsed = stream.get_final_completion().choices[0].message.parsed

tell(call=[call.function.name, json.loads(call.function.arguments)], answered=second.message.content,
     streamed_call=[streamed.function.name, streamed.function.parsed_arguments.model_dump()],
     streamed_answered=text, parsed=parsed.model_dump(), streamed_parsed=streamed_parsed.model_dump(), errors={})
