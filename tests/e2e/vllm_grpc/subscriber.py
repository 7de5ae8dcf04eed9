# SPDX-License-Identifier: Apache-2.0
"""A stock client of vllm.grpc.engine, and what one who subscribes to the events of a prefix cache knows of it."""
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from fleet import grpc, pb  # noqa: E402
from vllm import common_pb2, vllm_engine_pb2, vllm_engine_pb2_grpc  # noqa: E402

TIMEOUT_S = 60


class Engine:
    """One worker, as a gateway for vLLM drives it."""

    def __init__(self, address):
        self.client = fleet.Client(address)
        self.stub = vllm_engine_pb2_grpc.VllmEngineStub(self.client.channel)

    def tokens(self, text):
        return list(self.client.inference.Tokenize(pb.TokenizeRequest(text=text)).token_ids)

    def plain_tokens(self, text):
        """Without special ones, as gateways have them of texts that are no conversations."""
        return list(self.client.inference.Tokenize(pb.TokenizeRequest(text=text, omit_special_tokens=True)).token_ids)

    def text(self, ids):
        return self.client.inference.Detokenize(pb.DetokenizeRequest(token_ids=ids)).text

    def generate(self, tokens, max_tokens=1, tenant=None):
        """The last message of one generation."""
        request = vllm_engine_pb2.GenerateRequest(
            tokenized=vllm_engine_pb2.TokenizedInput(input_ids=tokens),
            sampling_params=vllm_engine_pb2.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))
        metadata = (("x-tenant-id", tenant),) if tenant else ()
        return list(self.stub.Generate(request, timeout=TIMEOUT_S, metadata=metadata))[-1].complete

    def cached_tokens(self, tokens):
        return self.generate(tokens).cached_tokens

    def capacity(self):
        """Tokens."""
        return self.stub.GetLoads(vllm_engine_pb2.GetLoadsRequest()).loads[0].max_total_num_tokens


class Subscriber:
    """Reads batches on a thread of its own, and knows nothing but what they tell, or told `earlier` before."""

    def __init__(self, engine, start=0, tenant=None, earlier=None):
        self.call = engine.stub.SubscribeKvEvents(
            common_pb2.SubscribeKvEventsRequest(start_sequence_number=start),
            metadata=(("x-tenant-id", tenant),) if tenant else ())
        self.changed = threading.Condition()
        self.blocks = dict(earlier.blocks) if earlier else {}  # hash: (hash of the parent, tokens)
        self.again = start  # the number of a batch that `earlier` has had
        self.stored = self.removed = self.cleared = 0
        self.start, self.parts, self.numbers, self.alone, self.error = start, [], [], [], None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            for batch in self.call:
                with self.changed:
                    self._apply(batch)
                    self.changed.notify_all()
        except grpc.RpcError as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def _apply(self, batch):
        assert batch.HasField("load")
        if batch.load.load_only:
            assert not batch.events and batch.sequence_number == (self.numbers or [self.start])[-1]
            self.alone.append(batch.load)
            return
        assert not self.numbers or batch.sequence_number == self.numbers[-1] + 1, "a number is left out"
        self.numbers.append(batch.sequence_number)
        if batch.HasField("snapshot"):
            self.parts.append(batch.snapshot)
        for event in batch.events:
            kind = event.WhichOneof("data")
            if kind == "cleared":
                self.blocks.clear()
                self.cleared += 1
            elif kind == "removed":
                for name in event.removed.block_hashes:
                    assert batch.sequence_number == self.again or name in self.blocks
                    self.removed += self.blocks.pop(name, None) is not None
            else:
                parent = event.stored.parent_block_hash if event.stored.HasField("parent_block_hash") else None
                for block in event.stored.blocks:
                    assert parent is None or parent in self.blocks, "a parent comes before its children"
                    assert batch.sequence_number == self.again or block.block_hash not in self.blocks
                    assert len(block.token_ids) == block.block_size
                    self.blocks[block.block_hash] = (parent, tuple(block.token_ids))
                    parent = block.block_hash
                    self.stored += 1

    def wait_until(self, condition, what):
        with self.changed:
            if not self.changed.wait_for(lambda: self.error is not None or condition(), TIMEOUT_S):
                raise TimeoutError(what)
            if self.error is not None and not condition():
                raise self.error

    def cached(self, tokens):
        """The number of tokens with which these begin that are cached. The last one is always computed."""
        children = {entry: name for name, entry in self.blocks.items()}
        size = len(next(iter(self.blocks.values()))[1]) if self.blocks else 1
        parent, found = None, 0
        while self.blocks and found + size < len(tokens):
            parent = children.get((parent, tuple(tokens[found:found + size])))
            if parent is None:
                break
            found += size
        return found

    def cancel(self):
        self.call.cancel()
        self.thread.join()
