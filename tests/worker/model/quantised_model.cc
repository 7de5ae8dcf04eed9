// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/model/quantised_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/own_tensors.h"

namespace continuo::testing {
namespace {

using nlohmann::json;

// Random codes of one matrix, as a format stores them and as what they mean.
class Drawn {
 public:
  Drawn(int64_t rows, int64_t columns, std::mt19937& random)
      : rows(rows),
        columns(columns),
        values(static_cast<size_t>(rows * columns)),
        random_(random) {}

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  std::vector<int> Codes(int64_t n, int below) {
    std::vector<int> codes(static_cast<size_t>(n));
    for (int& code : codes) code = Below(below);
    return codes;
  }
  // Numbers from `size` to twice that, which the 16-bit type has.
  std::vector<uint16_t> Scales(int64_t n, float size, bool are_bf16) {
    std::vector<uint16_t> scales(static_cast<size_t>(n));
    for (uint16_t& scale : scales) {
      const float value = size * (1 + static_cast<float>(Below(1000)) / 1000);
      scale = are_bf16 ? kernels::ToBF16(value) : kernels::ToF16(value);
    }
    return scales;
  }
  float& At(int64_t row, int64_t column) {
    return values[static_cast<size_t>(row * columns + column)];
  }

  const int64_t rows, columns;
  OwnTensors parts;  // by ending
  std::vector<float> values;

 private:
  std::mt19937& random_;
};

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
size_t Index(int64_t i) { return static_cast<size_t>(i); }

float Fp8(int code) {
  const int exponent = code >> 3 & 15;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(code & 7), -9)
                              : std::ldexp(static_cast<float>(8 + (code & 7)), exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

constexpr float kFp4[16] = {0.0f,  0.5f,  1,  1.5f,  2,  3,  4,  6,
                            -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

void DrawFp8(Drawn& drawn) {
  const int64_t grid = Ceil(drawn.columns, 16);
  std::vector<float> scales;
  for (int64_t i = 0; i < Ceil(drawn.rows, 16) * grid; ++i) {
    scales.push_back(1e-4f * (1 + static_cast<float>(drawn.Below(1000)) / 1000));
  }
  std::string codes;
  for (int64_t r = 0; r < drawn.rows; ++r) {
    for (int64_t c = 0; c < drawn.columns; ++c) {
      int code = drawn.Below(256);
      if ((code & 127) == 127) code = 0;
      codes += static_cast<char>(code);
      drawn.At(r, c) = Fp8(code) * scales[Index(r / 16 * grid + c / 16)];
    }
  }
  drawn.parts["weight"] = {"F8_E4M3", {drawn.rows, drawn.columns}, codes};
  drawn.parts["weight_scale_inv"] = {"F32", {Ceil(drawn.rows, 16), grid}, BytesOf(scales)};
}

void DrawInt8(Drawn& drawn) {
  const auto scales = drawn.Scales(drawn.rows, 3e-4f, true);
  std::string codes;
  for (int64_t r = 0; r < drawn.rows; ++r) {
    for (int64_t c = 0; c < drawn.columns; ++c) {
      const int code = drawn.Below(256) - 128;
      codes += static_cast<char>(code);
      drawn.At(r, c) = kernels::FromBF16(
          kernels::ToBF16(static_cast<float>(code) * kernels::FromBF16(scales[Index(r)])));
    }
  }
  drawn.parts["weight"] = {"I8", {drawn.rows, drawn.columns}, codes};
  drawn.parts["weight_scale"] = {"BF16", {drawn.rows, 1}, BytesOf(scales)};
}

// compressed-tensors' int4 in groups of 8 with zero points.
void DrawPacked(Drawn& drawn) {
  constexpr int64_t kGroup = 8;
  const int64_t groups = drawn.columns / kGroup;
  const auto codes = drawn.Codes(drawn.rows * drawn.columns, 16);
  const auto zeros = drawn.Codes(drawn.rows * groups, 16);
  const auto scales = drawn.Scales(drawn.rows * groups, 5e-3f, true);
  std::vector<uint32_t> words(Index(drawn.rows * Ceil(drawn.columns, 8)));
  std::vector<uint32_t> zero_words(Index(Ceil(drawn.rows, 8) * groups));
  for (int64_t r = 0; r < drawn.rows; ++r) {
    for (int64_t c = 0; c < drawn.columns; ++c) {
      const int64_t g = r * groups + c / kGroup;
      const int code = codes[Index(r * drawn.columns + c)];
      words[Index(r * Ceil(drawn.columns, 8) + c / 8)] |= static_cast<uint32_t>(code)
                                                          << (c % 8 * 4);
      drawn.At(r, c) = kernels::FromBF16(kernels::ToBF16(
          static_cast<float>(code - zeros[Index(g)]) * kernels::FromBF16(scales[Index(g)])));
    }
    for (int64_t g = 0; g < groups; ++g) {
      zero_words[Index(r / 8 * groups + g)] |= static_cast<uint32_t>(zeros[Index(r * groups + g)])
                                               << (r % 8 * 4);
    }
  }
  drawn.parts["weight_packed"] = {"I32", {drawn.rows, Ceil(drawn.columns, 8)}, BytesOf(words)};
  drawn.parts["weight_shape"] = {"I64", {2}, BytesOf<int64_t>({drawn.rows, drawn.columns})};
  drawn.parts["weight_scale"] = {"BF16", {drawn.rows, groups}, BytesOf(scales)};
  drawn.parts["weight_zero_point"] = {"I32", {Ceil(drawn.rows, 8), groups}, BytesOf(zero_words)};
}

void DrawNvfp4(Drawn& drawn) {
  constexpr int64_t kGroup = 8;
  constexpr float kDivisor = 3000;
  const int64_t groups = drawn.columns / kGroup;
  const auto codes = drawn.Codes(drawn.rows * drawn.columns, 16);
  const auto scales = drawn.Codes(drawn.rows * groups, 120);
  std::string bytes(Index(drawn.rows * drawn.columns / 2), 0), scale_bytes;
  for (int64_t i = 0; i < drawn.rows * drawn.columns; ++i) {
    bytes[Index(i / 2)] = static_cast<char>(bytes[Index(i / 2)] | codes[Index(i)] << (i % 2 * 4));
    const float scale = Fp8(scales[Index(i / kGroup)]) / kDivisor;
    drawn.values[Index(i)] = kernels::FromBF16(kernels::ToBF16(kFp4[codes[Index(i)]] * scale));
  }
  for (const int scale : scales) scale_bytes += static_cast<char>(scale);
  drawn.parts["weight_packed"] = {"U8", {drawn.rows, drawn.columns / 2}, bytes};
  drawn.parts["weight_scale"] = {"F8_E4M3", {drawn.rows, groups}, scale_bytes};
  drawn.parts["weight_global_scale"] = {"F32", {1}, BytesOf<float>({kDivisor})};
}

enum class Words { kAwq, kGptq, kGptqInAnyOrder };

// AWQ, or GPTQ of 4 bits, whose columns may belong to groups in any order.
void DrawWords(Drawn& drawn, Words kind) {
  const bool is_awq = kind == Words::kAwq, is_in_order = kind != Words::kGptqInAnyOrder;
  constexpr int64_t kGroup = 8;
  constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // of the rows in a word, low bits first
  const int64_t rows = drawn.rows, columns = drawn.columns, groups = columns / kGroup;
  const auto codes = drawn.Codes(rows * columns, 16);
  const auto zeros = drawn.Codes(rows * groups, 15);
  const auto scales = drawn.Scales(groups * rows, 5e-3f, false);  // [groups, rows]
  std::vector<int32_t> group_of;
  for (int64_t c = 0; c < columns; ++c) {
    group_of.push_back(static_cast<int32_t>(is_in_order ? c / kGroup : c * 5 % groups));
  }
  std::vector<uint32_t> words(Index(rows * columns / 8)), zero_words(Index(groups * rows / 8));
  const auto place = [&](int64_t r) -> int64_t {
    if (!is_awq) return r % 8;
    for (int i = 0; i < 8; ++i) {
      if (kAwqOrder[i] == r % 8) return i;
    }
    return 0;
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t g = group_of[Index(c)];
      const int code = codes[Index(r * columns + c)];
      const int64_t word = is_awq ? c * (rows / 8) + r / 8 : c / 8 * rows + r;
      words[Index(word)] |= static_cast<uint32_t>(code) << ((is_awq ? place(r) : c % 8) * 4);
      const float difference = static_cast<float>(code - zeros[Index(r * groups + g)]);
      drawn.At(r, c) = kernels::FromF16(
          kernels::ToF16(difference * kernels::FromF16(scales[Index(g * rows + r)])));
    }
    for (int64_t g = 0; g < groups; ++g) {
      const int zero = zeros[Index(r * groups + g)];
      zero_words[Index(g * (rows / 8) + r / 8)] |= static_cast<uint32_t>(zero) << (place(r) * 4);
    }
  }
  if (!is_awq) {  // the first version stores zeros less one
    for (uint32_t& word : zero_words) word -= 0x11111111u;
    if (!is_in_order) drawn.parts["g_idx"] = {"I32", {columns}, BytesOf(group_of)};
  }
  drawn.parts["qweight"] = {
      "I32", {is_awq ? columns : columns / 8, is_awq ? rows / 8 : rows}, BytesOf(words)};
  drawn.parts["qzeros"] = {"I32", {groups, rows / 8}, BytesOf(zero_words)};
  drawn.parts["scales"] = {"F16", {groups, rows}, BytesOf(scales)};
}

struct QuantisedFormat {
  std::string name;
  json config;
  std::function<void(Drawn&)> draw;
};

json Groups(const char* format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"ignore", {"lm_head"}},
          {"config_groups", {{"g", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

const std::vector<QuantisedFormat>& Formats() {
  static const auto* const formats = new std::vector<QuantisedFormat>{
      {"fp8", {{"quant_method", "fp8"}, {"weight_block_size", {16, 16}}}, DrawFp8},
      {"int8", Groups("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}}), DrawInt8},
      {"packed",
       Groups("pack-quantized",
              {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 8}, {"symmetric", false}}),
       DrawPacked},
      {"nvfp4",
       Groups(
           "nvfp4-pack-quantized",
           {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 8}}),
       DrawNvfp4},
      {"awq",
       {{"quant_method", "awq"}, {"group_size", 8}},
       [](Drawn& d) { DrawWords(d, Words::kAwq); }},
      {"gptq",
       {{"quant_method", "gptq"}, {"group_size", 8}},
       [](Drawn& d) { DrawWords(d, Words::kGptq); }},
      {"gptq with g_idx",
       {{"quant_method", "gptq"}, {"group_size", 8}},
       [](Drawn& d) { DrawWords(d, Words::kGptqInAnyOrder); }},
  };
  return *formats;
}

}  // namespace

std::vector<std::string> QuantisedFormats() {
  std::vector<std::string> names;
  for (const QuantisedFormat& format : Formats()) names.push_back(format.name);
  return names;
}

bool KeepsIntegers(std::string_view format) {
  return format != "fp8" && format != "gptq with g_idx";
}

QuantisedModel::QuantisedModel(const QuantisedModelOptions& options) {
  const auto format = std::ranges::find(Formats(), options.format, &QuantisedFormat::name);
  CONTINUO_CHECK(format != Formats().end());
  const TinyModel tiny({.family = options.family,
                        .intermediate_size = options.intermediate_size,
                        .context_length = options.context_length,
                        .tied_embeddings = false});
  const auto checkpoint = model::Checkpoint::Open(tiny.dir());
  CONTINUO_CHECK(checkpoint.ok());
  const std::map<std::string, model::StoredTensor> sorted(checkpoint->tensors().begin(),
                                                          checkpoint->tensors().end());
  std::mt19937 random(7);
  OwnTensors stored, meant;
  for (const auto& [name, tensor] : sorted) {
    const bool is_router = name.ends_with("gate.weight");
    if (tensor.shape.size() != 2 || !name.starts_with("model.layers.") || is_router ||
        name == options.plain) {
      stored[name] = {tensor.dtype,
                      tensor.shape,
                      {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}};
      meant[name] = stored[name];
      continue;
    }
    Drawn drawn(tensor.shape[0], tensor.shape[1], random);
    format->draw(drawn);
    const std::string module = name.substr(0, name.size() - std::string_view("weight").size());
    for (auto& [ending, part] : drawn.parts) stored[module + ending] = part;
    meant[name] = {"F32", tensor.shape, BytesOf(drawn.values)};
  }
  json config = json::parse(tiny.Read("config.json"));
  WriteModelFolder(values_dir(), config, meant);
  config["quantization_config"] = format->config;
  WriteModelFolder(dir(), config, stored);
}

}  // namespace continuo::testing
