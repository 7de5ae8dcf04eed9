# SPDX-License-Identifier: Apache-2.0
"""tritonclient over gRPC and HTTP: one answer, a stream beside another, what is served, errors."""
import os
import queue

import numpy
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from ask import *

client = triton.InferenceServerClient(os.environ["GRPC"])
KEY_HEADERS = {"authorization": "Bearer " + KEY}
SAMPLING = {"temperature": 0.0, "max_tokens": MAX_TOKENS}


def inputs(text, stream=False, protocol=triton):
    made = []
    for name, datatype, value in (("text_input", "BYTES", text.encode()), ("stream", "BOOL", stream)):
        tensor = protocol.InferInput(name, [1], datatype)
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


def ask_over_http(model, text, headers=KEY_HEADERS):
    """Tensors are bytes, as this client has them, and outputs once more as JSON."""
    host, headers = URL.removeprefix("http://"), dict(headers)  # the client adds some of its own
    with triton_http.InferenceServerClient(host, network_timeout=120) as http:
        answers = []
        for binary in (True, False):
            outputs = [triton_http.InferRequestedOutput("text_output", binary_data=binary)]
            result = http.infer(model, inputs(text, protocol=triton_http), outputs=outputs,
                                parameters=SAMPLING, headers=headers)
            (part,) = result.as_numpy("text_output")
            answers.append(part.decode() if isinstance(part, bytes) else part)
        assert http.is_server_live() and http.is_server_ready()
        assert http.is_model_ready(model, headers=headers)
        assert http.get_server_metadata(headers=headers)["name"] == "continuo"
        assert http.get_model_metadata(model, headers=headers)["outputs"][0]["name"] == "text_output"
        assert model in [entry["name"] for entry in http.get_model_repository_index(headers=headers)]
        assert answers[0] == answers[1], answers
        return answers[0]


completion = ask(MODEL, PROMPT)
assert ask_over_http(MODEL, PROMPT) == completion
for arguments, words in (((MODEL, LONG_QUESTION), "1024"), (("another", PROMPT), "is not served here"),
                         ((MODEL, PROMPT, {}), "key")):
    error = error_of(ask_over_http, *arguments)
    assert error.startswith("InferenceServerException") and words in error, error
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
