# SPDX-License-Identifier: Apache-2.0
"""A generation that survives the loss of its connection, its gateway and its worker."""
from __future__ import annotations

import dataclasses
import threading
import time
from typing import Callable, Iterator

import grpc

from continuo.errors import Error, from_rpc_error
from continuo.v1 import inference_pb2 as pb

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
# Before anything was received, a request is sent again only where the server asks for it.
_SENT_AGAIN = ("CONTINUE", "DRAINING")


@dataclasses.dataclass
class ToolCall:
    """A call that the answer asks for. `arguments` is a JSON object as text."""
    id: str
    name: str
    arguments: str = ""


@dataclasses.dataclass
class Answer:
    """One sequence of a generation, as far as it has come."""
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = dataclasses.field(default_factory=list)
    token_ids: list[int] = dataclasses.field(default_factory=list)
    # pb.FinishReason; 0 until the end.
    finish_reason: int = pb.FINISH_REASON_UNSPECIFIED

    def _add(self, delta: pb.Delta) -> None:
        self.text += delta.text
        self.reasoning += delta.reasoning
        self.token_ids.extend(delta.token_ids)
        self.finish_reason = delta.finish_reason or self.finish_reason
        for piece in delta.tool_calls:
            # A request that goes on behind the beginning of a call brings only its rest.
            while piece.index >= len(self.tool_calls):
                self.tool_calls.append(ToolCall("", ""))
            call = self.tool_calls[piece.index]
            call.id, call.name = piece.id or call.id, piece.name or call.name
            call.arguments += piece.arguments


class Generation:
    """An iterator over the responses to one request, each exactly once and in order.

    Where a call ends UNAVAILABLE after something was received, or OK without a summary, the request
    is sent again with what was received as its continuation. Iterating raises Error. One thread
    iterates; `cancel` may be called by any. `connect` waits until the server is connected to, at
    most so many seconds.
    """

    def __init__(self, generate: Callable[..., Iterator[pb.GenerateResponse]],
                 request: pb.GenerateRequest, *, metadata: tuple = (),
                 timeout: float | None = None, reconnect_for: float = 60.0,
                 connect: Callable[[float], None] = lambda seconds: None):
        self._generate = generate
        self._connect = connect
        self._request = pb.GenerateRequest()
        self._request.CopyFrom(request)
        self._metadata = metadata
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._reconnect_for = reconnect_for
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._call = None  # Guarded by _lock.
        self._received = pb.GenerateResponse()
        self._num_received = 0
        if self._request.continuation.HasField("received"):
            self._received.CopyFrom(self._request.continuation.received)
            self._num_received = self._received.sequence + 1
        self._responses = self._run()
        self.answers: dict[int, Answer] = {}
        self.num_reconnects = 0

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> pb.GenerateResponse:
        return next(self._responses)

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_) -> None:
        self.cancel()

    def texts(self, index: int = 0) -> Iterator[str]:
        """The pieces of a sequence's text as they come."""
        for response in self:
            for delta in response.deltas:
                if delta.index == index and delta.text:
                    yield delta.text

    def result(self) -> Answer:
        """Waits for the end; the first sequence. `answers` has all of them."""
        for _ in self:
            pass
        return self.answers.setdefault(0, Answer())

    def cancel(self) -> None:
        """Ends the generation, at the server too; iterating then raises CANCELLED."""
        self._cancelled.set()
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    @property
    def accepted(self) -> pb.Accepted:
        """The server's choices: request id, model, seed, fingerprint, worker."""
        return self._received.accepted

    @property
    def summary(self) -> pb.Summary:
        """Usage, timings and migrations; empty until the end."""
        return self._received.summary

    def _run(self) -> Iterator[pb.GenerateResponse]:
        pause, give_up = _FIRST_PAUSE_S, None
        while True:
            before = self._num_received
            error = None
            try:
                yield from self._run_once()
            except Error as failed:
                error = failed
            if self._received.HasField("summary"):
                return  # It is complete, whatever status follows.
            if self._cancelled.is_set():
                raise Error(grpc.StatusCode.CANCELLED, "cancelled by the client")
            error = error or Error(grpc.StatusCode.UNAVAILABLE,
                                   "the answer ended before its summary")
            now = time.monotonic()
            if self._num_received != before:
                pause, give_up = _FIRST_PAUSE_S, None
            if give_up is None:
                give_up = now + self._reconnect_for
            wait = max(pause, error.retry_delay or 0.0)
            end = give_up if self._deadline is None else min(give_up, self._deadline)
            if not self._may_go_on(error) or now + wait > end:
                raise error
            # Even an empty continuation matters: the request replaces one that a server holds.
            self._request.continuation.SetInParent()
            if self._num_received:
                self._request.continuation.received.CopyFrom(self._received)
            self.num_reconnects += 1
            if not self._cancelled.wait(wait):
                self._connect(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _may_go_on(self, error: Error) -> bool:
        if error.code == grpc.StatusCode.UNAVAILABLE:
            return self._num_received > 0 or error.reason in _SENT_AGAIN
        return (error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
                and error.retry_delay is not None)

    def _run_once(self) -> Iterator[pb.GenerateResponse]:
        timeout = None
        if self._deadline is not None:
            timeout = max(0.0, self._deadline - time.monotonic())
        with self._lock:
            if self._cancelled.is_set():
                return
            self._call = call = self._generate(self._request, timeout=timeout,
                                               metadata=self._metadata)
        try:
            for response in call:
                if response.sequence != self._num_received:
                    raise Error(grpc.StatusCode.DATA_LOSS,
                                f"response {response.sequence} came where {self._num_received} "
                                "was due")
                self._take(response)
                yield response
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()  # Whoever stops iterating stops the server, too.

    def _take(self, response: pb.GenerateResponse) -> None:
        """Keeps what a continuation has to bring back (inference.proto, Continuation)."""
        self._num_received += 1
        received = self._received
        received.sequence = response.sequence
        if response.HasField("accepted"):
            received.accepted.MergeFrom(response.accepted)
        for delta in response.deltas:
            self.answers.setdefault(delta.index, Answer())._add(delta)
            kept = next((d for d in received.deltas if d.index == delta.index), None)
            if kept is None:
                kept = received.deltas.add(index=delta.index)
            kept.token_ids.extend(delta.token_ids)
            if delta.finish_reason:
                kept.finish_reason = delta.finish_reason
        for _ in response.prompt_logprobs:
            received.prompt_logprobs.add()
        for _ in response.prompt_tokens:
            received.prompt_tokens.add()
        if response.HasField("summary"):
            received.summary.CopyFrom(response.summary)
