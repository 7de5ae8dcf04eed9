// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/stored_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/math/bfloat16.h"
#include "services/worker/gguf/blocks.h"

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

// Converts n elements, of which `load(i)` is the one at i.
template <typename Load>
bool ConvertAll(void* out, kernels::DType dtype, int64_t n, const Load& load) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    const float value = load(i);
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

// StoredType::convert of elements of `kSize` bytes that `kLoad` reads.
template <float (*kLoad)(const uint8_t*), int64_t kSize>
bool Convert(void* out, kernels::DType dtype, const uint8_t* row, int64_t first, int64_t n) {
  return ConvertAll(out, dtype, n, [&](int64_t i) { return kLoad(row + kSize * (first + i)); });
}

// StoredType::convert of blocks that `kDecode` reads.
template <void (*kDecode)(const uint8_t*, float*), int64_t kBlock, int64_t kBytes>
bool ConvertBlocks(void* out, kernels::DType dtype, const uint8_t* row, int64_t first, int64_t n) {
  bool fits = true;
  uint8_t* to = static_cast<uint8_t*>(out);
  while (n > 0) {
    float values[kBlock];
    kDecode(row + first / kBlock * kBytes, values);
    const int64_t begin = first % kBlock, count = std::min(n, kBlock - begin);
    fits &= ConvertAll(to, dtype, count, [&](int64_t i) { return values[begin + i]; });
    to += count * static_cast<int64_t>(kernels::SizeOf(dtype));
    first += count;
    n -= count;
  }
  return fits;
}

template <void (*kDecode)(const uint8_t*, float*), int64_t kBlock, int64_t kBytes>
constexpr StoredType Blocks(std::string_view name) {
  return {.name = name,
          .block = kBlock,
          .bytes = kBytes,
          .dtype = std::nullopt,
          .convert = ConvertBlocks<kDecode, kBlock, kBytes>};
}

constexpr StoredType kStoredTypes[] = {
    {"F32", 1, 4, kernels::DType::kF32, Convert<LoadF32, 4>},
    {"F16", 1, 2, kernels::DType::kF16, Convert<LoadF16, 2>},
    {"BF16", 1, 2, kernels::DType::kBF16, Convert<LoadBF16, 2>},
    Blocks<gguf::DecodeQ40, 32, 18>("Q4_0"),
    Blocks<gguf::DecodeQ41, 32, 20>("Q4_1"),
    Blocks<gguf::DecodeQ50, 32, 22>("Q5_0"),
    Blocks<gguf::DecodeQ51, 32, 24>("Q5_1"),
    Blocks<gguf::DecodeQ80, 32, 34>("Q8_0"),
    Blocks<gguf::DecodeQ2K, 256, 84>("Q2_K"),
    Blocks<gguf::DecodeQ3K, 256, 110>("Q3_K"),
    Blocks<gguf::DecodeQ4K, 256, 144>("Q4_K"),
    Blocks<gguf::DecodeQ5K, 256, 176>("Q5_K"),
    Blocks<gguf::DecodeQ6K, 256, 210>("Q6_K"),
    Blocks<gguf::DecodeIq4Nl, 32, 18>("IQ4_NL"),
    Blocks<gguf::DecodeIq4Xs, 256, 136>("IQ4_XS"),
    Blocks<gguf::DecodeMxfp4, 32, 17>("MXFP4"),
};

}  // namespace

const StoredType* FindStoredType(std::string_view name) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::span<const StoredType> StoredTypes() { return kStoredTypes; }

bool ConvertQuantised(void* out, kernels::DType dtype, const quantised::Matrix& matrix, int64_t row,
                      int64_t num_rows, int64_t first, int64_t n) {
  // Formats whose words hold several rows are read from the same cache lines by the rows of a tile.
  constexpr int64_t kRows = 16, kColumns = 128;
  bool fits = true;
  float tile[kRows * kColumns];
  uint8_t* const bytes = static_cast<uint8_t*>(out);
  const auto size = static_cast<int64_t>(kernels::SizeOf(dtype));
  for (int64_t r = 0; r < num_rows; r += kRows) {
    const int64_t rows = std::min(kRows, num_rows - r);
    for (int64_t c = 0; c < n; c += kColumns) {
      const int64_t columns = std::min(kColumns, n - c);
      matrix.Decode(row + r, rows, first + c, columns, tile);
      for (int64_t i = 0; i < rows; ++i) {
        fits &= ConvertAll(bytes + ((r + i) * n + c) * size, dtype, columns,
                           [&](int64_t j) { return tile[i * columns + j]; });
      }
    }
  }
  return fits;
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
