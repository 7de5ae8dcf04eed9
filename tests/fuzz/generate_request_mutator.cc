// SPDX-License-Identifier: Apache-2.0
// Mutates the inputs of generate_request_fuzz by their structure: four bytes and a proto.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>

#include "continuo/v1/inference.pb.h"
#include "tests/fuzz/proto_mutator.h"

namespace {

constexpr size_t kControlBytes = 4;

std::unique_ptr<google::protobuf::Message> MessageOf(uint8_t kind) {
  switch (kind % 8) {
    case 5:
      return std::make_unique<continuo::v1::GenerateResponse>();
    case 6:
      return std::make_unique<continuo::v1::TokenizeRequest>();
    case 7:
      return std::make_unique<continuo::v1::DetokenizeRequest>();
    default:
      return std::make_unique<continuo::v1::GenerateRequest>();
  }
}

// Returns the size of the input; `size` unchanged where it does not fit.
size_t Store(const google::protobuf::Message& message, uint8_t* data, size_t size,
             size_t max_size) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes + kControlBytes > max_size) return size;
  (void)message.SerializePartialToArray(data + kControlBytes, static_cast<int>(bytes));
  return bytes + kControlBytes;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  if (size < kControlBytes || max_size < kControlBytes || random() % 32 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  if (random() % 8 == 0) {
    LLVMFuzzerMutate(data, kControlBytes, kControlBytes);
    return size;
  }
  const auto message = MessageOf(data[0]);
  // Parses as much as can be read.
  (void)message->ParsePartialFromArray(data + kControlBytes,
                                       static_cast<int>(size - kControlBytes));
  for (int i = 1 + static_cast<int>(random() % 3); i > 0; --i) {
    continuo::MutateMessage(message.get(), random);
  }
  return Store(*message, data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned int /*seed*/) {
  if (size1 < kControlBytes || size2 < kControlBytes || max_size < size1) return 0;
  std::memcpy(out, data1, size1);
  const auto message = MessageOf(data1[0]);
  (void)message->ParsePartialFromArray(data1 + kControlBytes,
                                       static_cast<int>(size1 - kControlBytes));
  const auto other = MessageOf(data1[0]);
  (void)other->ParsePartialFromArray(data2 + kControlBytes,
                                     static_cast<int>(size2 - kControlBytes));
  message->MergeFrom(*other);
  return Store(*message, out, size1, max_size);
}
