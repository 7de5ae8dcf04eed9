// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/infer_tensor.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using nlohmann::json;
using Tensor = inference::ModelInferRequest::InferInputTensor;

static_assert(std::endian::native == std::endian::little, "raw contents are little-endian");

absl::Status Wrong(const Tensor& tensor, std::string_view what) {
  return protocol::FieldError(tensor.name(), std::string(what));
}

// The number of elements; nullopt where the shape has a negative size or is too large.
std::optional<uint64_t> NumElements(const Tensor& tensor) {
  uint64_t number = 1;
  for (const int64_t size : tensor.shape()) {
    if (size < 0 || size > std::numeric_limits<int32_t>::max()) return std::nullopt;
    number *= static_cast<uint64_t>(size);
    if (number > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  return number;
}

template <typename Number>
std::optional<json> FromRaw(std::string_view raw) {
  if (raw.size() % sizeof(Number) != 0) return std::nullopt;
  json elements = json::array();
  for (; !raw.empty(); raw.remove_prefix(sizeof(Number))) {
    Number number;
    std::memcpy(&number, raw.data(), sizeof(Number));
    if constexpr (std::is_same_v<Number, bool>) {
      elements.push_back(raw[0] != 0);
    } else {
      elements.push_back(number);
    }
  }
  return elements;
}

std::optional<json> TextsFromRaw(std::string_view raw) {
  json texts = json::array();
  while (!raw.empty()) {
    uint32_t size;
    if (raw.size() < sizeof(size)) return std::nullopt;
    std::memcpy(&size, raw.data(), sizeof(size));
    raw.remove_prefix(sizeof(size));
    if (raw.size() < size) return std::nullopt;
    texts.push_back(std::string(raw.substr(0, size)));
    raw.remove_prefix(size);
  }
  return texts;
}

template <typename Values>
std::optional<json> FromContents(const Values& values) {
  json elements = json::array();
  for (const auto& value : values) elements.push_back(value);
  return elements;
}

struct Datatype {
  std::string_view name;
  std::optional<json> (*from_raw)(std::string_view raw);
  std::optional<json> (*from_contents)(const inference::InferTensorContents& contents);
};

using Contents = inference::InferTensorContents;
constexpr Datatype kDatatypes[] = {
    {"BOOL",
     [](std::string_view raw) {
       static_assert(sizeof(bool) == 1);
       return FromRaw<bool>(raw);
     },
     [](const Contents& c) { return FromContents(c.bool_contents()); }},
    {"INT8", FromRaw<int8_t>, [](const Contents& c) { return FromContents(c.int_contents()); }},
    {"INT16", FromRaw<int16_t>, [](const Contents& c) { return FromContents(c.int_contents()); }},
    {"INT32", FromRaw<int32_t>, [](const Contents& c) { return FromContents(c.int_contents()); }},
    {"INT64", FromRaw<int64_t>, [](const Contents& c) { return FromContents(c.int64_contents()); }},
    {"UINT8", FromRaw<uint8_t>, [](const Contents& c) { return FromContents(c.uint_contents()); }},
    {"UINT16", FromRaw<uint16_t>,
     [](const Contents& c) { return FromContents(c.uint_contents()); }},
    {"UINT32", FromRaw<uint32_t>,
     [](const Contents& c) { return FromContents(c.uint_contents()); }},
    {"UINT64", FromRaw<uint64_t>,
     [](const Contents& c) { return FromContents(c.uint64_contents()); }},
    {"FP32", FromRaw<float>, [](const Contents& c) { return FromContents(c.fp32_contents()); }},
    {"FP64", FromRaw<double>, [](const Contents& c) { return FromContents(c.fp64_contents()); }},
    {"BYTES", TextsFromRaw, [](const Contents& c) { return FromContents(c.bytes_contents()); }},
};

}  // namespace

absl::StatusOr<json> ElementsOf(const Tensor& tensor, const std::string* raw) {
  const Datatype* type = nullptr;
  for (const Datatype& known : kDatatypes) {
    if (known.name == tensor.datatype()) type = &known;
  }
  if (type == nullptr) return Wrong(tensor, "has a datatype that is not supported");
  const std::optional<uint64_t> number = NumElements(tensor);
  if (!number.has_value()) return Wrong(tensor, "has a shape that is not supported");
  std::optional<json> elements =
      raw != nullptr ? type->from_raw(*raw) : type->from_contents(tensor.contents());
  if (!elements.has_value() || elements->size() != *number) {
    return Wrong(tensor, absl::StrCat("has other elements than the ", *number, " of its shape"));
  }
  for (const json& element : *elements) {
    if (!element.is_string()) continue;
    const auto& text = element.get_ref<const std::string&>();
    if (ToValidUtf8(text) != text) return Wrong(tensor, "is not UTF-8");
  }
  return *std::move(elements);
}

void AppendRawText(const std::string& text, std::string* raw) {
  const auto size = static_cast<uint32_t>(text.size());
  char bytes[sizeof(size)];
  std::memcpy(bytes, &size, sizeof(size));
  raw->append(bytes, sizeof(size)).append(text);
}

}  // namespace continuo::gateway::kserve
