// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/utf8.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using nlohmann::json;
using Contents = inference::InferTensorContents;

static_assert(std::endian::native == std::endian::little, "raw contents are little-endian");

absl::Status Wrong(const TensorHead& head, std::string_view what) {
  return protocol::FieldError(openai::ShowName(head.name), what);
}

// The number of elements; nullopt where the shape has a negative size or is too large.
std::optional<uint64_t> NumElements(const std::vector<int64_t>& shape) {
  uint64_t number = 1;
  for (const int64_t size : shape) {
    if (size < 0 || size > std::numeric_limits<int32_t>::max()) return std::nullopt;
    number *= static_cast<uint64_t>(size);
    if (number > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  return number;
}

// `number` is that of the shape, at most kMaxElements. What has others is not read.
template <typename Number>
std::optional<json> FromRaw(std::string_view raw, uint64_t number) {
  if (raw.size() != number * sizeof(Number)) return std::nullopt;
  json elements = json::array();
  for (; !raw.empty(); raw.remove_prefix(sizeof(Number))) {
    if constexpr (std::is_same_v<Number, bool>) {
      elements.push_back(raw[0] != 0);
    } else {
      Number element;
      std::memcpy(&element, raw.data(), sizeof(Number));
      elements.push_back(element);
    }
  }
  return elements;
}

std::optional<json> TextsFromRaw(std::string_view raw, uint64_t number) {
  json texts = json::array();
  while (!raw.empty()) {
    uint32_t size;
    if (texts.size() == number || raw.size() < sizeof(size)) return std::nullopt;
    std::memcpy(&size, raw.data(), sizeof(size));
    raw.remove_prefix(sizeof(size));
    if (raw.size() < size) return std::nullopt;
    texts.push_back(std::string(raw.substr(0, size)));
    raw.remove_prefix(size);
  }
  return texts;
}

template <typename Values>
std::optional<json> FromContents(const Values& values, uint64_t number) {
  if (static_cast<uint64_t>(values.size()) != number) return std::nullopt;
  json elements = json::array();
  for (const auto& value : values) elements.push_back(value);
  return elements;
}

// True if the JSON value is a number of this type.
template <typename Number>
bool IsNumber(const json& value) {
  if constexpr (std::is_floating_point_v<Number>) {
    return value.is_number();
  } else if (value.is_number_unsigned()) {
    return std::in_range<Number>(value.get<uint64_t>());
  } else {
    return value.is_number_integer() && std::in_range<Number>(value.get<int64_t>());
  }
}

struct Datatype {
  std::string_view name;
  std::optional<json> (*from_raw)(std::string_view raw, uint64_t number);
  std::optional<json> (*from_contents)(const Contents& contents, uint64_t number);
  bool (*is_element)(const json& value);
};

template <typename Number>
constexpr Datatype OfNumbers(std::string_view name,
                             std::optional<json> (*from_contents)(const Contents& contents,
                                                                  uint64_t number)) {
  return {name, FromRaw<Number>, from_contents, IsNumber<Number>};
}

std::optional<json> FromInt(const Contents& contents, uint64_t number) {
  return FromContents(contents.int_contents(), number);
}
std::optional<json> FromUint(const Contents& contents, uint64_t number) {
  return FromContents(contents.uint_contents(), number);
}

constexpr Datatype kDatatypes[] = {
    {"BOOL",
     [](std::string_view raw, uint64_t n) {
       static_assert(sizeof(bool) == 1);
       return FromRaw<bool>(raw, n);
     },
     [](const Contents& c, uint64_t n) { return FromContents(c.bool_contents(), n); },
     [](const json& value) { return value.is_boolean(); }},
    OfNumbers<int8_t>("INT8", FromInt),
    OfNumbers<int16_t>("INT16", FromInt),
    OfNumbers<int32_t>("INT32", FromInt),
    OfNumbers<int64_t>(
        "INT64", [](const Contents& c, uint64_t n) { return FromContents(c.int64_contents(), n); }),
    OfNumbers<uint8_t>("UINT8", FromUint),
    OfNumbers<uint16_t>("UINT16", FromUint),
    OfNumbers<uint32_t>("UINT32", FromUint),
    OfNumbers<uint64_t>("UINT64", [](const Contents& c,
                                     uint64_t n) { return FromContents(c.uint64_contents(), n); }),
    OfNumbers<float>(
        "FP32", [](const Contents& c, uint64_t n) { return FromContents(c.fp32_contents(), n); }),
    OfNumbers<double>(
        "FP64", [](const Contents& c, uint64_t n) { return FromContents(c.fp64_contents(), n); }),
    {"BYTES", TextsFromRaw,
     [](const Contents& c, uint64_t n) { return FromContents(c.bytes_contents(), n); },
     [](const json& value) { return value.is_string(); }},
};

// Appends the elements of a divided array, whose depth the parser has bounded. False for one that
// is none of the datatype.
bool Flatten(const json& data, const Datatype& type, json* elements) {
  for (const json& part : data) {
    if (part.is_array()) {
      if (!Flatten(part, type, elements)) return false;
    } else if (type.is_element(part)) {
      elements->push_back(part);
    } else {
      return false;
    }
  }
  return true;
}

// Reads by `read`, a function from the datatype and the number of elements to the elements.
template <typename Read>
absl::StatusOr<json> Elements(const TensorHead& head, int64_t* left, Read read) {
  const auto type = std::ranges::find(kDatatypes, head.datatype, &Datatype::name);
  if (type == std::end(kDatatypes)) return Wrong(head, "has a datatype that is not supported");
  const std::optional<uint64_t> number = NumElements(head.shape);
  if (!number.has_value()) return Wrong(head, "has a shape that is not supported");
  const auto taken = static_cast<int64_t>(*number);
  if (taken > *left) {
    return Wrong(head, absl::StrCat("has more elements than the ", *left, " that are left of ",
                                    kMaxElements, " for a request"));
  }
  *left -= taken;
  std::optional<json> elements = read(*type, *number);
  if (!elements.has_value() || elements->size() != *number) {
    return Wrong(head, absl::StrCat("has other elements than the ", *number, " of its shape"));
  }
  for (const json& element : *elements) {
    // JSON would have null in their place.
    if (element.is_number_float() && !std::isfinite(element.get<double>())) {
      return Wrong(head, "has a number that is not finite");
    }
    if (!element.is_string()) continue;
    const auto& text = element.get_ref<const std::string&>();
    if (ToValidUtf8(text) != text) return Wrong(head, "is not UTF-8");
  }
  return *std::move(elements);
}

}  // namespace

absl::StatusOr<json> ElementsOf(const TensorHead& head, const Contents& contents, int64_t* left) {
  return Elements(head, left, [&](const Datatype& type, uint64_t number) {
    return type.from_contents(contents, number);
  });
}

absl::StatusOr<json> ElementsOfRaw(const TensorHead& head, std::string_view raw, int64_t* left) {
  return Elements(head, left, [&](const Datatype& type, uint64_t number) {
    return type.from_raw(raw, number);
  });
}

absl::StatusOr<json> ElementsOfJson(const TensorHead& head, const json& data, int64_t* left) {
  return Elements(head, left, [&](const Datatype& type, uint64_t /*number*/) {
    std::optional<json> elements(json::array());
    if (!data.is_array() || !Flatten(data, type, &*elements)) elements.reset();
    return elements;
  });
}

void AppendRawNumber(uint32_t number, std::string* raw) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  raw->append(bytes, sizeof(number));
}

void AppendRawText(const std::string& text, std::string* raw) {
  AppendRawNumber(static_cast<uint32_t>(text.size()), raw);
  raw->append(text);
}

}  // namespace continuo::gateway::kserve
