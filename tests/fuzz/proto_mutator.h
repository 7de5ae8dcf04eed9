// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <random>

// libFuzzer's own function, which changes bytes in place.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace continuo {

// Changes one field somewhere in `message`: sets, clears, adds, removes, copies, or mutates its
// text as libFuzzer does. The result is a message again, unlike most mutated bytes.
void MutateMessage(google::protobuf::Message* message, std::minstd_rand& random);

}  // namespace continuo
