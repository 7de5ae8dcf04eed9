# SPDX-License-Identifier: Apache-2.0
"""langchain-openai over Responses and langchain-anthropic: whole, streamed, a tool's loop, a schema, errors."""
import os
from typing import Literal

from ask import *
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


def make(**more):
    options = dict(model=MODEL, temperature=0, max_tokens=MAX_TOKENS, max_retries=0, api_key=KEY) | more
    if os.environ["API"] == "messages":
        return ChatAnthropic(base_url=URL, **options)
    return ChatOpenAI(use_responses_api=True, **options)


def usage(message):
    return [message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]]


class Answer(BaseModel, extra="forbid"):
    name: Literal["Mira", "Tom"]


answer = make().invoke(QUESTION)
whole = whole_call = None
for chunk in make().stream(QUESTION):
    whole = chunk if whole is None else whole + chunk
with_tool = make(max_tokens=100).bind_tools([TOOL])
called = with_tool.invoke(TOOL_QUESTION)
for chunk in with_tool.stream(TOOL_QUESTION):
    whole_call = chunk if whole_call is None else whole_call + chunk
(call,) = called.tool_calls
assert [(c["name"], c["args"]) for c in whole_call.tool_calls] == [(call["name"], call["args"])]
answered = make().bind_tools([TOOL]).invoke(
    [HumanMessage(TOOL_QUESTION), called, ToolMessage(TOOL_RESULT, tool_call_id=call["id"])])
parsed = make(max_tokens=200).with_structured_output(Answer, method="json_schema").invoke(QUESTION)
left = make(model=LONG_MODEL, max_tokens=900).stream(LONG_QUESTION)
next(left)
left.close()

tell(chat=answer.text, streamed=whole.text, usage=usage(answer), streamed_usage=usage(whole),
     call=[call["name"], call["args"]], answered=answered.text, parsed=parsed.model_dump(),
     long=make(model=LONG_MODEL).invoke(LONG_QUESTION).text,
     errors={
         "too_long": error_of(make().invoke, LONG_QUESTION),
         "model": error_of(make(model="another").invoke, QUESTION),
         "key": error_of(make(api_key="wrong").invoke, QUESTION),
     })
