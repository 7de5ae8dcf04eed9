# SPDX-License-Identifier: Apache-2.0
continuo_library(fake_executor SRCS fake_executor.cc
  DEPS continuo::base continuo::manual_clock absl::flat_hash_map absl::flat_hash_set
       absl::function_ref absl::status absl::statusor absl::strings)
