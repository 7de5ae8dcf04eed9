# SPDX-License-Identifier: Apache-2.0
"""llama-index: OpenAILike as a chat model and as one of completions."""
from ask import *
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

messages = [ChatMessage(role="user", content=QUESTION)]


def llm(model=MODEL, is_chat_model=True, **more):
    return OpenAILike(**{"model": model, "api_base": BASE_URL, "api_key": KEY, "temperature": 0,
                         "max_tokens": MAX_TOKENS, "context_window": 1024, "max_retries": 0,
                         "is_chat_model": is_chat_model, **more})


answer = llm().chat(messages)
streamed = list(llm().stream_chat(messages))
plain = llm(is_chat_model=False)
completion = plain.complete(PROMPT).text
assert "".join(c.delta for c in plain.stream_complete(PROMPT)) == completion
left = llm(max_tokens=900, additional_kwargs={"extra_body": {"ignore_eos": True}}).stream_chat(messages)
next(left)
left.close()

tell(chat=answer.message.content, streamed="".join(c.delta for c in streamed),
     usage=[answer.raw.usage.prompt_tokens, answer.raw.usage.completion_tokens],
     stopped=llm().chat(messages, stop=[STOP]).message.content, completion=completion,
     long=llm(LONG_MODEL).chat([ChatMessage(role="user", content=LONG_QUESTION)]).message.content,
     errors={
         "too_long": error_of(llm().chat, [ChatMessage(role="user", content=LONG_QUESTION)]),
         "model": error_of(llm("another").chat, messages),
         "key": error_of(llm(api_key="wrong").chat, messages),
     })
