// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdint>
#include <string>

#include "services/protocol/wire_check.h"

namespace continuo::gateway {

// About how much memory a message and its bytes take, as ClientCall::num_bytes counts it. For
// messages that did not arrive as bytes.
template <typename Message>
int64_t MemoryOf(const Message& message) {
  const std::string bytes = message.SerializeAsString();
  google::protobuf::io::ArrayInputStream input(bytes.data(), static_cast<int>(bytes.size()));
  return protocol::MemoryOf(static_cast<int64_t>(bytes.size()),
                            protocol::CountOnWire(&input, *Message::descriptor()));
}

}  // namespace continuo::gateway
