# SPDX-License-Identifier: Apache-2.0
"""The messages of continuo.v1, as protoc generates them from continuo/v1/inference.proto."""
from continuo.v1.inference_pb2 import *  # noqa: F401,F403
