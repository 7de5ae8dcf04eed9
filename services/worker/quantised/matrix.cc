// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/math/bfloat16.h"

namespace continuo::quantised {
namespace {

template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// E4M3 without infinities: a sign, 4 bits of exponent less 7, 3 of fraction.
constexpr float Float8(int bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  float value = 0;
  if (exponent == 0) {
    value = static_cast<float>(fraction) * 0x1p-9f;
  } else {
    value =
        std::bit_cast<float>(static_cast<uint32_t>((exponent - 7 + 127) << 23 | fraction << 20));
  }
  return (bits & 128) != 0 ? -value : value;
}

constexpr std::array<float, 256> kFloat8 = [] {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) values[static_cast<size_t>(i)] = Float8(i);
  return values;
}();

constexpr float kFloat4[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// The place among the 8 of a word of AWQ of each row.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// 2^(e - 127); no number where all bits are ones.
float PowerOfTwo(uint8_t e) {
  if (e == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(e == 0 ? 0x00400000u : static_cast<uint32_t>(e) << 23);
}

template <Codes kCodes>
float CodeAt(const Matrix& m, int64_t row, int64_t column) {
  if constexpr (kCodes == Codes::kGptq4 || kCodes == Codes::kGptq8) {
    constexpr int kBits = kCodes == Codes::kGptq4 ? 4 : 8, kPerWord = 32 / kBits;
    const uint8_t* const word = m.code_bytes + column / kPerWord * m.code_stride + row * 4;
    const auto shift = static_cast<int>(column % kPerWord) * kBits;
    return static_cast<float>(Load<uint32_t>(word) >> shift & ((1u << kBits) - 1));
  } else if constexpr (kCodes == Codes::kAwq4) {
    const uint8_t* const word = m.code_bytes + column * m.code_stride + row / 8 * 4;
    return static_cast<float>(Load<uint32_t>(word) >> (4 * kAwqPlace[row % 8]) & 15);
  } else if constexpr (kCodes == Codes::kBiasedInt4 || kCodes == Codes::kFloat4) {
    const int pair = m.code_bytes[row * m.code_stride + column / 2];
    const int code = column % 2 == 0 ? pair & 15 : pair >> 4;
    if constexpr (kCodes == Codes::kFloat4) return kFloat4[code];
    return static_cast<float>(code);
  } else {
    const uint8_t byte = m.code_bytes[row * m.code_stride + column];
    if constexpr (kCodes == Codes::kFloat8) return kFloat8[byte];
    if constexpr (kCodes == Codes::kInt8) return static_cast<float>(static_cast<int8_t>(byte));
    return static_cast<float>(byte);
  }
}

float ScaleAt(const Matrix& m, int64_t row, int64_t group) {
  const int64_t i = row / m.shared_rows * m.scales.row_step + group * m.scales.group_step;
  const uint8_t* const at = m.scales.bytes;
  switch (m.scale_type) {
    case ScaleType::kF32:
      return Load<float>(at + 4 * i);
    case ScaleType::kBF16:
      return kernels::FromBF16(Load<uint16_t>(at + 2 * i));
    case ScaleType::kF16:
      return kernels::FromF16(Load<uint16_t>(at + 2 * i));
    case ScaleType::kFloat8:
      return kFloat8[at[i]] / m.divisor;
    case ScaleType::kPowerOfTwo:
      return PowerOfTwo(at[i]);
  }
  return 0;
}

// The code of zero.
float ZeroAt(const Matrix& m, int64_t row, int64_t group) {
  const auto word = [&](int64_t per_word) {
    const int64_t i = row / per_word * m.zeros.row_step + group * m.zeros.group_step;
    return Load<uint32_t>(m.zeros.bytes + 4 * i) + m.zero_plus;
  };
  switch (m.zero_type) {
    case ZeroType::kPacked4:
      return static_cast<float>(word(8) >> (4 * (row % 8)) & 15);
    case ZeroType::kPacked8:
      return static_cast<float>(word(4) >> (8 * (row % 4)) & 255);
    case ZeroType::kAwq4:
      return static_cast<float>(word(8) >> (4 * kAwqPlace[row % 8]) & 15);
    case ZeroType::kNone:
    case ZeroType::kInt8:
      break;
  }
  float zero = m.codes == Codes::kBiasedInt8 ? 128 : m.codes == Codes::kBiasedInt4 ? 8 : 0;
  if (m.zero_type == ZeroType::kInt8) {
    const int64_t i = row / m.shared_rows * m.zeros.row_step + group * m.zeros.group_step;
    zero += static_cast<float>(static_cast<int8_t>(m.zeros.bytes[i]));
  }
  return zero;
}

// One row of a tile. Differences of codes are exact, so there is one rounding to f32, of the
// product.
template <Codes kCodes>
void DecodeRow(const Matrix& m, int64_t row, int64_t begin, int64_t end, float* out) {
  for (int64_t c = begin; c < end;) {
    int64_t group = c / m.shared_columns, next = std::min(end, (group + 1) * m.shared_columns);
    if (m.group_of != nullptr) {
      group = Load<int32_t>(m.group_of + 4 * c);
      next = c + 1;
    }
    const float scale = ScaleAt(m, row, group), zero = ZeroAt(m, row, group);
    for (; c < next; ++c) {
      const float code = CodeAt<kCodes>(m, row, c);
      // A float's zero keeps its sign.
      const bool is_float = kCodes == Codes::kFloat8 || kCodes == Codes::kFloat4;
      *out++ = (is_float ? code : code - zero) * scale;
    }
  }
}

template <Codes kCodes>
void DecodeRows(const Matrix& m, int64_t row, int64_t num_rows, int64_t column, int64_t num_columns,
                float* out) {
  for (int64_t r = 0; r < num_rows; ++r) {
    DecodeRow<kCodes>(m, row + r, column, column + num_columns, out + r * num_columns);
  }
}

// The code that is stored as the integer 0.
int IntegerOffset(const Matrix& m, const IntegerForm& form) {
  if (m.codes == Codes::kInt8 || m.codes == Codes::kFloat4) return 0;
  if (form.bits == 8) return 128;
  return form.has_minimum ? 0 : 8;
}

}  // namespace

std::optional<IntegerForm> Matrix::integer_form() const {
  if (group_of != nullptr || codes == Codes::kFloat8) return std::nullopt;
  IntegerForm form = {.columns = std::min(shared_columns, columns)};
  switch (codes) {
    case Codes::kFloat4:
      form.bits = 4;
      form.codes = kernels::GroupCodes::kFp4;
      break;
    case Codes::kInt8:
    case Codes::kBiasedInt8:
    case Codes::kGptq8:
      form.bits = 8;
      break;
    case Codes::kBiasedInt4:
    case Codes::kGptq4:
    case Codes::kAwq4:
      form.bits = 4;
      break;
    case Codes::kFloat8:
      return std::nullopt;
  }
  form.has_minimum = zero_type != ZeroType::kNone;
  form.has_f16_scales = scale_type == ScaleType::kF16 && codes != Codes::kFloat4;
  return form;
}

GroupScale Matrix::ReadIntegers(int64_t row, int64_t column, int64_t n, int8_t* integers) const {
  const IntegerForm form = *integer_form();
  const int64_t group = column / shared_columns;
  const float scale = ScaleAt(*this, row, group);
  const int offset = IntegerOffset(*this, form);
  const auto read = [&](auto code_at) {
    for (int64_t i = 0; i < n; ++i) {
      integers[i] = static_cast<int8_t>(static_cast<int>(code_at(column + i)) - offset);
    }
  };
  switch (codes) {
    case Codes::kFloat4:
      read([&](int64_t c) { return 2 * CodeAt<Codes::kFloat4>(*this, row, c); });
      return {.scale = scale / 2};
    case Codes::kInt8:
      read([&](int64_t c) { return CodeAt<Codes::kInt8>(*this, row, c); });
      break;
    case Codes::kBiasedInt8:
      read([&](int64_t c) { return CodeAt<Codes::kBiasedInt8>(*this, row, c); });
      break;
    case Codes::kBiasedInt4:
      read([&](int64_t c) { return CodeAt<Codes::kBiasedInt4>(*this, row, c); });
      break;
    case Codes::kGptq4:
      read([&](int64_t c) { return CodeAt<Codes::kGptq4>(*this, row, c); });
      break;
    case Codes::kGptq8:
      read([&](int64_t c) { return CodeAt<Codes::kGptq8>(*this, row, c); });
      break;
    case Codes::kAwq4:
      read([&](int64_t c) { return CodeAt<Codes::kAwq4>(*this, row, c); });
      break;
    case Codes::kFloat8:
      break;
  }
  if (!form.has_minimum) return {.scale = scale};
  return {.scale = scale,
          .minimum = (static_cast<float>(offset) - ZeroAt(*this, row, group)) * scale};
}

void Matrix::Decode(int64_t row, int64_t num_rows, int64_t column, int64_t num_columns,
                    float* out) const {
  using Rows = void (*)(const Matrix&, int64_t, int64_t, int64_t, int64_t, float*);
  static constexpr Rows kRows[] = {DecodeRows<Codes::kFloat8>,     DecodeRows<Codes::kInt8>,
                                   DecodeRows<Codes::kBiasedInt8>, DecodeRows<Codes::kBiasedInt4>,
                                   DecodeRows<Codes::kFloat4>,     DecodeRows<Codes::kGptq4>,
                                   DecodeRows<Codes::kGptq8>,      DecodeRows<Codes::kAwq4>};
  kRows[static_cast<size_t>(codes)](*this, row, num_rows, column, num_columns, out);
  const int64_t n = num_rows * num_columns;
  if (value_type == kernels::DType::kBF16) {
    for (int64_t i = 0; i < n; ++i) out[i] = kernels::FromBF16(kernels::ToBF16(out[i]));
  } else if (value_type == kernels::DType::kF16) {
    for (int64_t i = 0; i < n; ++i) out[i] = kernels::FromF16(kernels::ToF16(out[i]));
  }
}

}  // namespace continuo::quantised
