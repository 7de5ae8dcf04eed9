# SPDX-License-Identifier: Apache-2.0
"""langchain-openai: chat, streams, batches, tools, the legacy completions, structured output, errors, a
stream that is left."""
from typing import Literal

from ask import *
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

options = dict(temperature=0, max_tokens=MAX_TOKENS, max_retries=0)
chat = ChatOpenAI(model=MODEL, stream_usage=True, **options)
answer = chat.invoke(QUESTION)
whole = None
for chunk in chat.stream(QUESTION):
    whole = chunk if whole is None else whole + chunk
assert [a.content for a in chat.batch([QUESTION] * 3)] == [answer.content] * 3
assert answer.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"] == "stop"
with_tool = ChatOpenAI(model=MODEL, temperature=0, max_tokens=100, max_retries=0).bind_tools([TOOL])
called = with_tool.invoke(TOOL_QUESTION)
whole_call = None
for chunk in with_tool.stream(TOOL_QUESTION):
    whole_call = chunk if whole_call is None else whole_call + chunk
(call,) = called.tool_calls
assert [(c["name"], c["args"]) for c in whole_call.tool_calls] == [(call["name"], call["args"])]
answered = with_tool.invoke([HumanMessage(TOOL_QUESTION), called, ToolMessage(TOOL_RESULT, tool_call_id=call["id"])])
left = ChatOpenAI(model=MODEL, max_tokens=900, extra_body={"ignore_eos": True}).stream(QUESTION)
next(left)
left.close()


class Answer(BaseModel, extra="forbid"):
    name: Literal["Mira", "Tom"]


roomy = ChatOpenAI(model=MODEL, temperature=0, max_tokens=200, max_retries=0)
assert isinstance(roomy.with_structured_output(Answer, method="json_schema").invoke(QUESTION), Answer)
assert isinstance(roomy.with_structured_output(Answer.model_json_schema(), method="json_schema").invoke(QUESTION),
                  dict)


def usage(message):
    return [message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]]


tell(chat=answer.content, streamed=whole.content, usage=usage(answer), streamed_usage=usage(whole),
     stopped=chat.invoke(QUESTION, stop=[STOP]).content,
     completion=OpenAI(model=MODEL, **options).invoke(PROMPT),
     call=[call["name"], call["args"]], answered=answered.content,
     long=ChatOpenAI(model=LONG_MODEL, **options).invoke(LONG_QUESTION).content,
     errors={
         "too_long": error_of(chat.invoke, LONG_QUESTION),
         "model": error_of(ChatOpenAI(model="another", **options).invoke, QUESTION),
         "key": error_of(ChatOpenAI(model=MODEL, api_key="wrong", **options).invoke, QUESTION),
         "path": error_of(ChatOpenAI(model=MODEL, base_url=URL + "/v2", **options).invoke, QUESTION),
     })
