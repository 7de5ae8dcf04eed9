# SPDX-License-Identifier: Apache-2.0
"""Errors of calls, with the details that a Continuo server attaches to them."""
from __future__ import annotations

import grpc
from google.rpc import error_details_pb2, status_pb2

_DOMAIN = "continuo.v1"
_DETAILS = "grpc-status-details-bin"


class Error(Exception):
    """The end of a call that did not succeed.

    code: of gRPC. message: for people. reason: a word such as "NO_WORKER", "" where the server
    gives none. field: the field of the request that is refused, as "sampling.temperature", or "".
    retry_delay: seconds after which the server may be asked again; None where it does not say so.
    """

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", field: str = "",
                 retry_delay: float | None = None):
        super().__init__(code, message, reason, field, retry_delay)
        self.code = code
        self.message = message
        self.reason = reason
        self.field = field
        self.retry_delay = retry_delay

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        delay = "" if self.retry_delay is None else f"; try again in {self.retry_delay:g} s"
        return f"{self.code.name}{reason}: {self.message}{delay}"


def from_rpc_error(error: grpc.RpcError) -> Error:
    """Returns the error of a call of grpcio."""
    reason, field, retry_delay = "", "", None
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS:
            continue
        for detail in _details(value):
            info = error_details_pb2.ErrorInfo()
            retry = error_details_pb2.RetryInfo()
            bad_request = error_details_pb2.BadRequest()
            if detail.Unpack(info) and info.domain == _DOMAIN:
                reason = info.reason
            elif detail.Unpack(retry):
                retry_delay = max(0.0, retry.retry_delay.ToNanoseconds() / 1e9)
            elif detail.Unpack(bad_request) and bad_request.field_violations:
                field = bad_request.field_violations[0].field
    return Error(error.code(), error.details() or "", reason, field, retry_delay)


def _details(serialized):
    try:
        return status_pb2.Status.FromString(serialized).details
    except Exception:  # Another server's details: DecodeError's class depends on the runtime.
        return ()
