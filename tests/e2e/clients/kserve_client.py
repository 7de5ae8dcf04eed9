# SPDX-License-Identifier: Apache-2.0
"""kserve's clients of the Open Inference Protocol, over HTTP and gRPC."""
import asyncio
import os

from ask import *
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

HEADERS = {"authorization": "Bearer " + KEY}
SAMPLING = {"temperature": 0, "max_tokens": MAX_TOKENS}  # over gRPC no floats: those are tensors


def request(model, text):
    tensor = InferInput("text_input", [1], "BYTES", data=[text])
    return InferRequest(model_name=model, infer_inputs=[tensor], parameters=SAMPLING)


def text_of(response):
    (text,) = next(output.data for output in response.outputs if output.name == "text_output")
    return text.decode() if isinstance(text, bytes) else text


class Http:
    def __init__(self):
        self.client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, timeout=120))

    async def ask(self, model, text, headers=HEADERS):
        return text_of(await self.client.infer(URL, request(model, text), model_name=model,
                                               headers=headers))

    async def check_ready(self):
        assert await self.client.is_server_live(URL) and await self.client.is_server_ready(URL)
        assert await self.client.is_model_ready(URL, MODEL, headers=HEADERS)


class Grpc:
    def __init__(self):
        self.client = InferenceGRPCClient(os.environ["GRPC"], retries=2, timeout=120)

    async def ask(self, model, text, headers=HEADERS):
        return text_of(await self.client.infer(request(model, text), headers=list(headers.items())))

    async def check_ready(self):
        assert await self.client.is_server_live() and await self.client.is_server_ready()
        assert await self.client.is_model_ready(MODEL, headers=list(HEADERS.items()))


async def error_told(call, *arguments):
    try:
        await call(*arguments)
    except Exception as error:  # whatever the client makes of it is compared
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


async def main():
    clients = Http(), Grpc()  # in the loop that they run in
    completions = [await client.ask(MODEL, PROMPT) for client in clients]
    assert completions[0] == completions[1], completions
    for client in clients:
        await client.check_ready()
        error = await error_told(client.ask, "another", PROMPT)
        assert "is not served here" in error, error
    http = clients[0]
    tell(completion=completions[0],
         errors={
             "too_long": await error_told(http.ask, MODEL, LONG_QUESTION),
             "model": await error_told(http.ask, "another", PROMPT),
             "key": await error_told(http.ask, MODEL, PROMPT, {}),
         })
    for client in clients:
        await client.client.close()


asyncio.run(main())
