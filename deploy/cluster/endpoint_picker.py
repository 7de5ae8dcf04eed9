# SPDX-License-Identifier: Apache-2.0
"""What a proxy does for a request in front of an InferencePool of gateways: it asks the endpoint picker for a
destination, by Envoy's ext-proc, and sends the request there. And what keeps a gateway busy meanwhile."""
import collections
import contextlib
import http.client
import json
import queue
import sys

import cluster

sys.path.insert(0, str(cluster.K8S_ROOT / "python"))  # build.sh puts Envoy's messages there
sys.path.insert(0, str(cluster.ROOT / "tests/e2e"))
import fleet  # noqa: E402
from envoy.config.core.v3 import base_pb2  # noqa: E402
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb  # noqa: E402
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc  # noqa: E402
from fleet import grpc  # noqa: E402

PATH = "/v1/completions"
REQUEST = {"model": "demo", "prompt": "Mira lives in Oslo.", "max_tokens": 8, "temperature": 0}
DESTINATION = "x-gateway-destination-endpoint"
TIMEOUT_S = 30


class Picker:
    def __init__(self, address):
        self.stub = pb_grpc.ExternalProcessorStub(grpc.insecure_channel(address))

    def ask(self, request=None):
        """The answer of the gateway that the picker names, and that gateway's address, for one request. The picker sees
        the answer's header and body, too, as it does through a proxy."""
        body = json.dumps(request or REQUEST).encode()
        sent = queue.SimpleQueue()
        sent.put(pb.ProcessingRequest(request_headers=_headers({
            ":method": "POST", ":path": PATH, "content-type": "application/json"})))
        sent.put(pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=True)))
        told = self.stub.Process(iter(sent.get, None), timeout=TIMEOUT_S, wait_for_ready=True)
        try:
            destination = _destination(told)
            status, answer = post(destination, body)
            sent.put(pb.ProcessingRequest(response_headers=_headers({
                ":status": str(status), "content-type": "application/json"})))
            sent.put(pb.ProcessingRequest(response_body=pb.HttpBody(body=answer, end_of_stream=True)))
            next(response for response in told if response.HasField("response_body"))
        finally:
            sent.put(None)
        assert status == 200, f"{destination}: {status} {answer}"
        return json.loads(answer)["choices"][0]["text"], destination

    def picks(self, count):
        """How many of so many requests each gateway got."""
        return collections.Counter(self.ask()[1] for _ in range(count))


def _headers(headers):
    return pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=[
        base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in headers.items()]))


def _destination(told):
    """What the picker sets for the proxy, which comes with the request's header."""
    response = next(told)
    if response.HasField("immediate_response"):
        refusal = response.immediate_response
        raise RuntimeError(f"the picker refuses: {refusal.status.code} {refusal.body}")
    set_headers = response.request_headers.response.header_mutation.set_headers
    return next(option.header.raw_value.decode() for option in set_headers if option.header.key == DESTINATION)


def post(address, body):
    """Status and body of one request to one gateway."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("POST", PATH, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


class Held:
    """Streams of one gateway that stay open, for nobody reads them: an answer with its logprobs does not fit into what
    HTTP/2 lets a stream send ahead."""
    REQUEST = fleet.pb.GenerateRequest(
        model="demo", text=REQUEST["prompt"], sampling=fleet.pb.Sampling(num_sequences=2),
        stopping=fleet.pb.Stopping(max_tokens=900, ignore_eos=True),
        output=fleet.pb.Output(logprobs=20))

    def __init__(self, address, count=0):
        self.channel = grpc.insecure_channel(grpc_of(address), [("grpc.http2.bdp_probe", 0),
                                                                ("grpc.use_local_subchannel_pool", 1)])
        self.stub = fleet.pb_grpc.InferenceServiceStub(self.channel)
        self.calls = []
        for _ in range(count):
            self.add()

    def add(self):
        """One more, which has begun."""
        call = self.stub.Generate(self.REQUEST)
        next(call)
        self.calls.append(call)

    def fill(self):
        """As many as the gateway takes."""
        try:
            while True:
                self.add()
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for call in self.calls:
            call.cancel()
        self.channel.close()


def grpc_of(address):
    """Where the gateway speaks gRPC whose OpenAI API is at this address."""
    return address.rsplit(":", 1)[0] + ":50050"


def streams_at(gateway):
    """What the picker reads."""
    return cluster.metrics(gateway, "/metrics/load")["continuo_gateway_open_streams"]


def check_choices(picker, gateways):
    """The picker has chosen each of the two gateways when both are idle, and the one with fewer streams otherwise. They
    take a handful of streams each, and nobody else asks them."""
    expected = picker.ask()[0]
    assert expected, "an answer without a text"

    def only(gateway):
        return lambda: set(picker.picks(5)) == {gateway}

    idle = picker.picks(40)
    assert set(idle) == set(gateways), f"{idle} of {gateways} without load"
    for busy, other in (gateways, gateways[::-1]):
        with Held(busy, 2):
            cluster.wait_until(only(other), 10, f"requests to leave {busy}")
            assert set(picker.picks(20)) == {other}, "a gateway with more streams was chosen"
            with Held(other) as full:
                full.fill()
                cluster.wait_until(only(busy), 10, f"requests to leave {other}, which is full")
                rejected = post(other, json.dumps(REQUEST).encode())
                assert rejected[0] == 429, rejected
                for _ in range(20):
                    text, chosen = picker.ask()
                    assert (text, chosen) == (expected, busy), (text, chosen)
        for gateway in gateways:
            cluster.wait_until(lambda g=gateway: streams_at(g) == 0, 30, f"no stream at {gateway}")
    print(f"    {dict(idle)} without load; 40 of 40 passed by a gateway with more streams, 40 a full one", flush=True)
