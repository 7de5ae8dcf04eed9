# SPDX-License-Identifier: Apache-2.0
"""langchain-openai: bind_tools with a tool that runs, and with_structured_output in its two ways."""
from answer import *
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

chat = ChatOpenAI(model=MODEL, max_retries=0, **OPTIONS)
asked = []


@tool
def find_person(name: str) -> str:
    """Tells where somebody is."""
    asked.append(name)
    return TOOL_RESULT


def loop(ask, strict):
    """Goes round until there is an answer."""
    messages, calls = [HumanMessage(TOOL_QUESTION)], []
    while True:
        message = ask(chat.bind_tools([find_person], strict=strict), messages)
        messages.append(message)
        if not message.tool_calls:
            return calls, message.content
        for call in message.tool_calls:
            calls.append([call["name"], call["args"]])
            messages.append(find_person.invoke(call))


def streamed(model, messages):
    whole = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


(call,), answered = loop(lambda model, messages: model.invoke(messages), strict=None)
(streamed_call,), streamed_answered = loop(streamed, strict=True)
assert asked == [call[1]["name"]] * 2
for choice in ("any", "find_person"):
    (needed,) = chat.bind_tools([find_person], tool_choice=choice, parallel_tool_calls=False).invoke(
        TOOL_QUESTION).tool_calls
    assert needed["name"] == "find_person"

structured = chat.with_structured_output(Answer)
*_, last = structured.stream(QUESTION)
by_call = chat.with_structured_output(Answer, method="function_calling").invoke(QUESTION)
assert isinstance(by_call, Answer)

tell(call=call, answered=answered, streamed_call=streamed_call, streamed_answered=streamed_answered,
     parsed=structured.invoke(QUESTION).model_dump(), streamed_parsed=last.model_dump(), errors={})
