# SPDX-License-Identifier: Apache-2.0
# fake_generation: a worker's answers without a model; no gRPC.
continuo_library(fake_generation SRCS fake_generation.cc
  DEPS continuo::errors continuo::proto_messages absl::status absl::strings)
