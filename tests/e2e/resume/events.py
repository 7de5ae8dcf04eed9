# SPDX-License-Identifier: Apache-2.0
"""Events of HTTP streams: a plain reader of them, and what they say."""
import http.client
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from routes import ask  # noqa: E402


def parse(body):
    """The events of the body, which ends with one; comments are none."""
    blocks = body.decode().split("\n\n")[:-1]
    events = (dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks)
    return [event for event in events if "data" in event]


class EventSource:
    """A browser's EventSource, but with a POST: keeps whole events, and the id of the last one."""

    def __init__(self, path, members, headers):
        self.path, self.members, self.headers = path, members, headers
        self.events, self.last_id, self.is_complete, self.num_cuts = [], "", False, 0

    def read(self, address):
        """One connection, to its end or its cut. The status that is no stream is an error."""
        connection = http.client.HTTPConnection(address, timeout=120)
        headers = dict(self.headers)
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        try:
            response = ask(connection, self.path, {**self.members, "stream": True}, headers)
            if response.status == 204:
                self.is_complete = True
                return
            if response.status != 200:
                raise AssertionError(f"{response.status}: {response.read()}")
            self._take(response)
        except (http.client.HTTPException, OSError):
            self.num_cuts += 1
        finally:
            connection.close()

    def _take(self, response):
        rest = b""
        # Lines would end quietly where the connection does between two chunks.
        while piece := response.read1(4096):
            whole, end, rest = (rest + piece).rpartition(b"\n\n")
            for event in parse(whole + end):
                if "id" not in event:
                    raise AssertionError(f"without an id: {event}")
                self.last_id = event["id"]
                self.events.append(event)
        self.is_complete = True


def usage_of(usage):
    """Without what the cache had, which is another in each run."""
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    return [prompt + usage.get("cache_read_input_tokens", 0),
            usage.get("completion_tokens", usage.get("output_tokens"))]


def joined(events):
    """Returns what the events say, however tokens came together in them: texts and the order of all else. An event
    of an error is an AssertionError."""
    texts, ends, whole = {}, {}, []
    for number, event in enumerate(events):
        if event["data"] == "[DONE]":
            whole.append("done")
            continue
        data = json.loads(event["data"])
        if data.get("error") or data.get("type") in ("error", "response.failed"):
            raise AssertionError(f"event {number} is {event}")
        if "sequence_number" in data and data.pop("sequence_number") != number:
            raise AssertionError(f"event {number} is {event}")
        for part in (data, data.get("response"), data.get("message")):
            for name in ("created_at", "completed_at", "created"):
                (part or {}).pop(name, None)
            if (part or {}).get("usage"):
                part["usage"] = usage_of(part["usage"])
        if data.get("type") == "message_start":
            data["message"]["usage"] = None  # zeros where no worker had the request yet
        for choice in data.get("choices", []):
            kept = texts.setdefault(choice["index"], [])
            kept.append(choice["text"] if "text" in choice else choice["delta"].get("content", ""))
            if choice["finish_reason"]:
                if choice["index"] in ends:
                    raise AssertionError(f"choice {choice['index']} ends twice")
                ends[choice["index"]] = choice["finish_reason"]
        delta = data.get("delta")
        if data.get("type", "").endswith("delta") and data["type"] != "message_delta":
            texts.setdefault(data.get("output_index", data.get("index")), []).append(
                delta if isinstance(delta, str) else delta.get("text", ""))
        elif not data.get("choices"):
            whole.append(data)
    return {index: "".join(pieces) for index, pieces in texts.items()}, ends, whole
