# SPDX-License-Identifier: Apache-2.0
"""instructor: classes by schema and by a call, streamed in parts, and a call whose result is answered."""
import json

from answer import *
import instructor
import openai

options = dict(model=MODEL, max_retries=0, **OPTIONS)
plain = openai.OpenAI(max_retries=0)


def client(mode):
    return instructor.from_openai(plain, mode=mode)


by_schema = client(instructor.Mode.JSON_SCHEMA)
parsed = by_schema.create(response_model=Answer, messages=MESSAGES, **options)
*_, last = by_schema.create_partial(response_model=Answer, messages=MESSAGES, **options)
for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
    assert isinstance(client(mode).create(response_model=Answer, messages=MESSAGES, **options), Answer)

# The tool is a class of this name.
Person = type("find_person", (FindPerson,), {"__doc__": FindPerson.__doc__})
person, completion = client(instructor.Mode.TOOLS).create_with_completion(
    response_model=Person, messages=[{"role": "user", "content": TOOL_QUESTION}], **options)
(call,) = completion.choices[0].message.tool_calls
answered = plain.chat.completions.create(model=MODEL, tools=[TOOL], messages=[
    {"role": "user", "content": TOOL_QUESTION}, completion.choices[0].message,
    {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT}], **OPTIONS)
assert person.model_dump() == json.loads(call.function.arguments)

tell(call=[call.function.name, person.model_dump()], answered=answered.choices[0].message.content,
     parsed=parsed.model_dump(), streamed_parsed=last.model_dump(), errors={})
