# SPDX-License-Identifier: Apache-2.0
"""The client: a channel to a gateway or worker, and the calls over it."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Mapping, Sequence

import grpc

from continuo.errors import from_rpc_error
from continuo.generation import Generation
from continuo.v1 import inference_pb2 as pb
from continuo.v1 import inference_pb2_grpc as pb_grpc

# A connection that broke silently is found by pings; their defaults stop after two while a call only
# receives. An answer of `collect` may be larger than gRPC's default of 4 MiB.
_CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0), ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000), ("grpc.max_receive_message_length", -1)]


class Client:
    """Thread-safe. Every method that calls the server raises continuo.Error.

    server: HOST:PORT. api_key: by default $CONTINUO_API_KEY. tls: with the system's root
    certificates, or with those of ca_file; cert_file and key_file are shown to the server (mutual
    TLS). reconnect_for: seconds for which an answer is continued without anything new.
    """

    def __init__(self, server: str = "localhost:50050", *, api_key: str | None = None,
                 tenant: str | None = None, tls: bool = False, ca_file: str | None = None,
                 cert_file: str | None = None, key_file: str | None = None,
                 tls_server_name: str | None = None, reconnect_for: float = 60.0):
        api_key = os.environ.get("CONTINUO_API_KEY") if api_key is None else api_key
        self._metadata = tuple(
            ([("authorization", f"Bearer {api_key}")] if api_key else [])
            + ([("x-tenant-id", tenant)] if tenant else []))
        self._reconnect_for = reconnect_for
        options = list(_CHANNEL_OPTIONS)
        if tls_server_name:
            options.append(("grpc.ssl_target_name_override", tls_server_name))
        if (cert_file is None) != (key_file is None):
            raise ValueError("cert_file and key_file belong together")
        if tls or ca_file or cert_file:
            read = {name: pathlib.Path(path).read_bytes() if path else None for name, path in
                    (("root_certificates", ca_file), ("private_key", key_file),
                     ("certificate_chain", cert_file))}
            self._channel = grpc.secure_channel(server, grpc.ssl_channel_credentials(**read),
                                                options=options)
        else:
            self._channel = grpc.insecure_channel(server, options=options)
        self._stub = pb_grpc.InferenceServiceStub(self._channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def generate(self, prompt: str | Sequence[int], *, timeout: float | None = None,
                 **options: Any) -> Generation:
        """Continues a text, or token ids. Options: see `request_of`."""
        request = request_of(**options)
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.token_ids.ids.extend(prompt)
            request.token_ids.SetInParent()
        return self.send(request, timeout=timeout)

    def chat(self, messages: Sequence[Mapping[str, Any] | pb.ChatMessage], *,
             tools: Sequence[Mapping[str, Any] | pb.Tool] = (), tool_choice: str | None = None,
             template_arguments: Mapping[str, Any] | None = None, timeout: float | None = None,
             **options: Any) -> Generation:
        """Answers a conversation.

        messages and tools: messages of continuo.v1, or mappings with their fields; a tool's
        parameters and a call's arguments may be mappings, too. tool_choice: "auto", "none",
        "required" or the name of the tool that has to be called. Options: see `request_of`.
        """
        request = request_of(**options)
        conversation = request.conversation
        conversation.SetInParent()
        for message in messages:
            conversation.messages.append(_message(pb.ChatMessage, message))
        for tool in tools:
            conversation.tools.append(_message(pb.Tool, tool))
        if tool_choice in ("auto", "none", "required"):
            conversation.tool_choice.mode = pb.ToolChoice.Mode.Value(f"MODE_{tool_choice.upper()}")
        elif tool_choice is not None:
            conversation.tool_choice.mode = pb.ToolChoice.MODE_REQUIRED
            conversation.tool_choice.name = tool_choice
        if template_arguments is not None:
            conversation.template_arguments = json.dumps(template_arguments)
        return self.send(request, timeout=timeout)

    def send(self, request: pb.GenerateRequest, *, timeout: float | None = None) -> Generation:
        """Begins a generation with all that continuo.v1 can ask for. timeout: seconds."""
        return Generation(self._stub.Generate, request, metadata=self._metadata, timeout=timeout,
                          reconnect_for=self._reconnect_for, connect=self._connect)

    def tokenize(self, text: str, *, model: str = "", timeout: float | None = None) -> list[int]:
        response = self._unary(self._stub.Tokenize, pb.TokenizeRequest(model=model, text=text),
                               timeout)
        return list(response.token_ids)

    def detokenize(self, token_ids: Sequence[int], *, model: str = "",
                   timeout: float | None = None) -> str:
        request = pb.DetokenizeRequest(model=model, token_ids=token_ids)
        return self._unary(self._stub.Detokenize, request, timeout).text

    def models(self, *, timeout: float | None = None) -> list[pb.Model]:
        return list(self._unary(self._stub.ListModels, pb.ListModelsRequest(), timeout).models)

    def model(self, name: str = "", *, timeout: float | None = None) -> pb.Model:
        """One model; the name may be left out where one is served."""
        return self._unary(self._stub.GetModel, pb.GetModelRequest(name=name), timeout).model

    def _connect(self, seconds):
        # Between calls a channel of grpcio connects only while somebody waits for it.
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=seconds)
        except grpc.FutureTimeoutError:
            ready.cancel()

    def _unary(self, method, request, timeout):
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error


def request_of(*, model: str = "", request_id: str = "", max_tokens: int | None = None,
               min_tokens: int | None = None, stop: str | Sequence[str] = (),
               temperature: float | None = None, top_k: int | None = None,
               top_p: float | None = None, min_p: float | None = None, seed: int | None = None,
               num_sequences: int | None = None, logprobs: int | None = None,
               json_schema: str | Mapping[str, Any] | None = None, regex: str | None = None,
               choices: Sequence[str] = (), priority: int | None = None,
               ignore_eos: bool = False, exact_only: bool = False) -> pb.GenerateRequest:
    """Returns a request without a prompt. What is left out takes the model's defaults.

    The arguments are the fields of continuo.v1 (inference.proto says what each does); at most one
    of json_schema, regex and choices constrains the answer. ValueError for a value that the field
    cannot hold.
    """
    request = pb.GenerateRequest(model=model, request_id=request_id, exact_only=exact_only)
    if priority is not None:
        request.priority = priority
    stopping = {"max_tokens": max_tokens, "min_tokens": min_tokens}
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
                "seed": seed, "num_sequences": num_sequences}
    for message, values in ((request.stopping, stopping), (request.sampling, sampling),
                            (request.output, {"logprobs": logprobs})):
        for name, value in values.items():
            if value is not None:
                setattr(message, name, value)
    request.stopping.ignore_eos = ignore_eos
    request.stopping.strings.extend([stop] if isinstance(stop, str) else stop)
    given = [name for name, value in (("json_schema", json_schema), ("regex", regex),
                                      ("choices", choices or None)) if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other")
    if json_schema is not None:
        request.constraint.json_schema = (
            json_schema if isinstance(json_schema, str) else json.dumps(json_schema))
    elif regex is not None:
        request.constraint.regex = regex
    elif choices:
        request.constraint.choice.options.extend(choices)
    return request


def _message(kind, value):
    """A message of this kind, from one or from a mapping of its fields."""
    if isinstance(value, kind):
        return value
    fields = dict(value)
    for name in ("parameters", "arguments"):
        if isinstance(fields.get(name), Mapping):
            fields[name] = json.dumps(fields[name])
    if "tool_calls" in fields:
        fields["tool_calls"] = [_message(pb.ToolCall, call) for call in fields["tool_calls"]]
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{kind.DESCRIPTOR.name}: {error}") from error
