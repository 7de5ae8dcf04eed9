# SPDX-License-Identifier: Apache-2.0
"""A script for a model that an agent asks.

The demo model knows nothing of files. A proxy between agent and gateway makes it follow a script: it sets
`tool_choice` and narrows the schema of the tool's arguments to the script's, so that the workers can generate
these tokens alone, and the answer behind the last step to a text. All else of a request and of its answer passes
as it is."""
import http.client
import http.server
import json
import threading

# Headers that are for one connection alone (RFC 9110, section 7.6.1), and those that are written anew.
HOP_BY_HOP = ("connection", "content-length", "host", "keep-alive", "transfer-encoding")


def exactly(arguments):
    """A schema that these arguments alone match."""
    return {"type": "object", "properties": {name: {"const": value} for name, value in arguments.items()},
            "required": list(arguments), "additionalProperties": False}


class Responses:
    """The script's way into a request of /v1/responses."""

    PATH = "/v1/responses"

    @staticmethod
    def num_done(body):
        """Steps whose results the agent has sent."""
        return sum(item.get("type") == "function_call_output" for item in body["input"])

    @staticmethod
    def call(body, name, arguments):
        (tool,) = [tool for tool in body["tools"] if tool.get("name") == name]
        tool["parameters"], tool["strict"] = exactly(arguments), True
        body |= {"tool_choice": {"type": "function", "name": name}, "parallel_tool_calls": False}

    @staticmethod
    def say(body, text):
        body |= {"tool_choice": "none", "text": {"format": {
            "type": "json_schema", "name": "end", "schema": {"const": text}}}}


class Messages:
    """The same of /v1/messages."""

    PATH = "/v1/messages"

    @staticmethod
    def num_done(body):
        return sum(block.get("type") == "tool_result" for message in body["messages"]
                   for block in message["content"] if isinstance(block, dict))

    @staticmethod
    def call(body, name, arguments):
        (tool,) = [tool for tool in body["tools"] if tool.get("name") == name]
        tool["input_schema"], tool["strict"] = exactly(arguments), True
        body["tool_choice"] = {"type": "tool", "name": name, "disable_parallel_tool_use": True}

    @staticmethod
    def say(body, text):
        body["tool_choice"] = {"type": "none"}
        body["output_config"] = {**body.get("output_config", {}), "format": {
            "type": "json_schema", "schema": {"const": text}}}


class ScriptedModel:
    """Forwards to `target` ("host:port") what comes to `url`, where a request with tools gets its next step:
    `steps` are (name of the tool, arguments), and `end` is said behind the last one. `num_asked` counts the
    requests of each step, and `on_step` is told each step's number before its request goes on. Requests without
    tools are the agent's own matter, and may have a short answer of any text. `failures` are answers that were
    no success, and what went wrong."""

    def __init__(self, target, form, steps, end, on_step):
        self._target, self._form, self._steps, self._end, self._on_step = target, form, steps, end, on_step
        self.num_asked, self.failures = [0] * (len(steps) + 1), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer._serve(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, *_):
                pass
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _direct(self, body):
        """Writes the script's next step into a request."""
        if not body.get("tools"):
            body["max_tokens" if self._form is Messages else "max_output_tokens"] = 8
            return
        number = self._form.num_done(body)
        self.num_asked[number] += 1
        self._on_step(number)
        if number < len(self._steps):
            self._form.call(body, *self._steps[number])
        else:
            self._form.say(body, self._end)

    def _serve(self, handler):
        try:
            body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
            path = handler.path.partition("?")[0]
            if path == self._form.PATH:
                members = json.loads(body)
                self._direct(members)
                body = json.dumps(members).encode()
            self._forward(handler, body)
        except Exception as error:
            self.failures.append(f"{handler.command} {handler.path}: {error!r}")
            raise

    def _forward(self, handler, body):
        connection = http.client.HTTPConnection(self._target, timeout=120)
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in HOP_BY_HOP}
        connection.request(handler.command, handler.path, body or None, headers)
        response = connection.getresponse()
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP:
                handler.send_header(name, value)
        handler.end_headers()  # of HTTP/1.0: the answer ends with the connection
        answer = b""
        while piece := response.read1(65536):
            answer += piece
            handler.wfile.write(piece)
            handler.wfile.flush()
        if response.status >= 400 and handler.command == "POST":
            self.failures.append(f"{handler.path}: {response.status} {answer[:2000]}")
        connection.close()
