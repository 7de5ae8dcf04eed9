# SPDX-License-Identifier: Apache-2.0
"""tritonclient: one answer, a stream beside another, what is served, errors."""
import os
import queue

import numpy
import tritonclient.grpc as triton
from ask import *

client = triton.InferenceServerClient(os.environ["GRPC"])
KEY_HEADERS = {"authorization": "Bearer " + KEY}
SAMPLING = {"temperature": 0.0, "max_tokens": MAX_TOKENS}


def inputs(text, stream=False):
    made = []
    for name, datatype, value in (("text_input", "BYTES", text.encode()), ("stream", "BOOL", stream)):
        tensor = triton.InferInput(name, [1], datatype)
        tensor.set_data_from_numpy(numpy.array([value], dtype=bool if datatype == "BOOL" else object))
        made.append(tensor)
    return made


def ask(model, text, headers=KEY_HEADERS):
    answer = client.infer(model, inputs(text), parameters=SAMPLING, headers=headers)
    return answer.as_numpy("text_output")[0].decode()


def streamed(*texts):
    """The texts of generations on one stream, and their reasons."""
    results = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)), headers=KEY_HEADERS)
    for number, text in enumerate(texts):
        client.async_stream_infer(MODEL, inputs(text, stream=True), request_id=str(number),
                                  parameters=SAMPLING, enable_empty_final_response=True)
    told, reasons, parts = [""] * len(texts), [""] * len(texts), 0
    left = len(texts)
    while left:
        result, error = results.get(timeout=60)
        if error:
            raise error
        response = result.get_response()
        number = int(response.id)
        if response.parameters["triton_final_response"].bool_param:
            left -= 1
            continue
        parts += 1
        told[number] += result.as_numpy("text_output")[0].decode()
        reasons[number] += result.as_numpy("finish_reason")[0].decode()
    client.stop_stream()
    return told, reasons, parts


completion = ask(MODEL, PROMPT)
told, reasons, parts = streamed(PROMPT, PROMPT)
assert told == [completion, completion], told
assert all(reason in ("stop", "length") for reason in reasons), reasons
assert parts >= 2, parts
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready(MODEL, headers=KEY_HEADERS)
assert not client.is_model_ready("another", headers=KEY_HEADERS)
metadata = client.get_model_metadata(MODEL, headers=KEY_HEADERS, as_json=True)
assert metadata["inputs"][0]["name"] == "text_input", metadata
index = client.get_model_repository_index(headers=KEY_HEADERS, as_json=True)
tell(completion=completion, models=sorted(model["name"] for model in index["models"]),
     errors={
         "too_long": error_of(ask, MODEL, LONG_QUESTION),
         "model": error_of(ask, "another", PROMPT),
         "key": error_of(ask, MODEL, PROMPT, {}),
     })
