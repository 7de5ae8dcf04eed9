// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/stored_types.h"

#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/bfloat16.h"

namespace continuo::model {
namespace {

float LoadF32(const uint8_t* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint16_t LoadBits(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

float LoadF16(const uint8_t* at) { return kernels::FromF16(LoadBits(at)); }
float LoadBF16(const uint8_t* at) { return kernels::FromBF16(LoadBits(at)); }

// StoredType::convert of elements of `kSize` bytes that `kLoad` reads.
template <float (*kLoad)(const uint8_t*), int64_t kSize>
bool Convert(void* out, kernels::DType dtype, const uint8_t* in, int64_t n) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    const float value = kLoad(in + kSize * i);
    if (dtype == kernels::DType::kF32) {
      static_cast<float*>(out)[i] = value;
    } else if (dtype == kernels::DType::kF16) {
      const uint16_t half = static_cast<uint16_t*>(out)[i] = kernels::ToF16(value);
      fits &= (half & 0x7fff) != 0x7c00 || std::isinf(value);
    } else {
      static_cast<uint16_t*>(out)[i] = kernels::ToBF16(value);
    }
  }
  return fits;
}

constexpr StoredType kStoredTypes[] = {
    {.name = "F32", .size = 4, .dtype = kernels::DType::kF32, .convert = Convert<LoadF32, 4>},
    {.name = "F16", .size = 2, .dtype = kernels::DType::kF16, .convert = Convert<LoadF16, 2>},
    {.name = "BF16", .size = 2, .dtype = kernels::DType::kBF16, .convert = Convert<LoadBF16, 2>},
};

}  // namespace

const StoredType* FindStoredType(std::string_view name) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string StoredTypeNames() {
  std::string names;
  const size_t count = std::size(kStoredTypes);
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&names,
                    i == 0           ? ""
                    : i + 1 == count ? " and "
                                     : ", ",
                    std::string(kStoredTypes[i].name));
  }
  return names;
}

}  // namespace continuo::model
