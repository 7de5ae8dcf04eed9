# SPDX-License-Identifier: Apache-2.0
"""A client of Continuo whose answers go on by themselves after lost connections.

    import continuo

    with continuo.Client("localhost:50050") as client:
        for text in client.chat([{"role": "user", "content": "Hello"}]).texts():
            print(text, end="", flush=True)

The messages of continuo.v1 are in `continuo.messages`.
"""
from continuo import messages
from continuo.client import Client
from continuo.errors import Error
from continuo.generation import Answer, Generation, ToolCall

__all__ = ["Answer", "Client", "Error", "Generation", "ToolCall", "messages"]
