# SPDX-License-Identifier: Apache-2.0
# fake_generation makes a worker's answers without a model and without gRPC.
continuo_library(fake_generation SRCS fake_generation.cc
  DEPS continuo::protocol continuo::proto_messages absl::status absl::strings)
# fake_worker serves them over gRPC, with loads that a test scripts.
if(CONTINUO_GRPC)
  continuo_library(fake_worker SRCS fake_worker.cc
    DEPS continuo::fake_generation continuo::common continuo::proto absl::synchronization)
endif()
