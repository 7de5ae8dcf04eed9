# SPDX-License-Identifier: Apache-2.0
# fake_generation: a worker's answers without a model; no gRPC.
continuo_library(fake_generation SRCS fake_generation.cc
  DEPS continuo::protocol continuo::proto_messages absl::status absl::strings)
# fake_worker: the same over gRPC, with loads that a test scripts.
if(CONTINUO_GRPC)
  continuo_library(fake_worker SRCS fake_worker.cc
    DEPS continuo::fake_generation continuo::common continuo::proto absl::synchronization)
endif()
