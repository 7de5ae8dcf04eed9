// SPDX-License-Identifier: Apache-2.0
// A safetensors file, or its index, of any bytes gives views inside the file or an error.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "services/base/check.h"
#include "services/worker/model/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = continuo::model::ParseSafetensors("fuzz", {data, size});
  if (tensors.ok()) {
    uint64_t sum = 0;
    size_t total = 0;
    for (const continuo::model::StoredTensor& tensor : *tensors) {
      total += tensor.bytes.size();
      for (const uint8_t byte : tensor.bytes) sum += byte;
    }
    CONTINUO_CHECK(total <= size);  // no two tensors share a byte
    CONTINUO_CHECK(sum <= 255 * static_cast<uint64_t>(size));
  }
  const auto index =
      continuo::model::ParseSafetensorsIndex({reinterpret_cast<const char*>(data), size});
  if (index.ok()) {
    for (const auto& [name, shard] : *index) {
      CONTINUO_CHECK(shard.find('/') == std::string_view::npos && shard != "..");
    }
  }
  return 0;
}
