// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/foreign_file.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/absl_view.h"

namespace continuo::gguf {
namespace {

constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxNameBytes = 1024;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxArray = 1 << 24;  // elements; vocabularies are the longest arrays
constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;

// Types of metadata values, as they are numbered in files.
enum class Kind : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// The double whose shortest decimal is that of the float: what the file's writer had.
double Decimal(float value) {
  if (!std::isfinite(value)) return static_cast<double>(value);
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  double result = 0;
  if (error == std::errc()) std::from_chars(text, end, result);
  return result;
}

std::string Show(std::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(Absl(name.substr(0, 80))), "\"");
}

class Reader {
 public:
  Reader(std::string_view file_name, std::span<const uint8_t> file)
      : file_name_(file_name), file_(file) {}

  absl::StatusOr<Contents> Read() {
    uint32_t version = 0;
    uint64_t num_tensors = 0, num_keys = 0;
    if (file_.size() < 4 || std::memcmp(file_.data(), "GGUF", 4) != 0) {
      const std::string foreign = ForeignFile(std::string_view(
          reinterpret_cast<const char*>(file_.data()), std::min(file_.size(), kForeignHeadBytes)));
      return Error(foreign.empty() ? "is no GGUF file" : foreign);
    }
    at_ = 4;
    RETURN_IF_ERROR(Take(version));
    if (version == 0x02000000 || version == 0x03000000)
      return Error("is big-endian; convert it to little-endian");
    if (version != 2 && version != 3) {
      return Error("is of GGUF version ", version, "; 2 and 3 are read");
    }
    RETURN_IF_ERROR(Take(num_tensors));
    RETURN_IF_ERROR(Take(num_keys));
    if (num_keys > kMaxKeys) return Error("has ", num_keys, " keys, more than ", kMaxKeys);
    if (num_tensors > kMaxTensors) {
      return Error("has ", num_tensors, " tensors, more than ", kMaxTensors);
    }
    Contents contents;
    RETURN_IF_ERROR(ReadMetadata(num_keys, contents));
    RETURN_IF_ERROR(ReadTensors(num_tensors, contents));
    return contents;
  }

 private:
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(Absl(file_name_), ": ", parts...));
  }
  absl::Status Truncated() const {
    return Error("ends at byte ", file_.size(), " within its header; is it truncated?");
  }

  template <typename T>
  absl::Status Take(T& value) {
    if (file_.size() - at_ < sizeof(T)) return Truncated();
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return absl::OkStatus();
  }
  absl::Status TakeString(std::string_view& text) {
    uint64_t size = 0;
    RETURN_IF_ERROR(Take(size));
    if (file_.size() - at_ < size) return Truncated();
    text = {reinterpret_cast<const char*>(file_.data()) + at_, size};
    at_ += size;
    return absl::OkStatus();
  }
  absl::Status TakeName(std::string_view& name, std::string_view what) {
    RETURN_IF_ERROR(TakeString(name));
    if (name.size() <= kMaxNameBytes) return absl::OkStatus();
    return Error("the name of a ", Absl(what), " has ", name.size(), " bytes, more than ",
                 kMaxNameBytes);
  }
  template <typename T>
  absl::Status TakeWhole(Value& value) {
    T number = 0;
    RETURN_IF_ERROR(Take(number));
    if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>) {
      // No value that a model needs is so large; it must not become negative.
      number = std::min<T>(number, std::numeric_limits<int64_t>::max());
    }
    value = static_cast<int64_t>(number);
    return absl::OkStatus();
  }

  absl::Status TakeScalar(Kind kind, Value& value) {
    switch (kind) {
      case Kind::kUint8:
        return TakeWhole<uint8_t>(value);
      case Kind::kInt8:
        return TakeWhole<int8_t>(value);
      case Kind::kUint16:
        return TakeWhole<uint16_t>(value);
      case Kind::kInt16:
        return TakeWhole<int16_t>(value);
      case Kind::kUint32:
        return TakeWhole<uint32_t>(value);
      case Kind::kInt32:
        return TakeWhole<int32_t>(value);
      case Kind::kUint64:
        return TakeWhole<uint64_t>(value);
      case Kind::kInt64:
        return TakeWhole<int64_t>(value);
      case Kind::kFloat32: {
        float number = 0;
        RETURN_IF_ERROR(Take(number));
        value = Decimal(number);
        return absl::OkStatus();
      }
      case Kind::kFloat64: {
        double number = 0;
        RETURN_IF_ERROR(Take(number));
        value = number;
        return absl::OkStatus();
      }
      case Kind::kBool: {
        uint8_t bit = 0;
        RETURN_IF_ERROR(Take(bit));
        value = bit != 0;
        return absl::OkStatus();
      }
      case Kind::kString: {
        std::string_view text;
        RETURN_IF_ERROR(TakeString(text));
        value = text;
        return absl::OkStatus();
      }
      case Kind::kArray:
        break;
    }
    return Error("has a metadata value of type ", static_cast<uint32_t>(kind),
                 ", which is not known");
  }

  absl::Status TakeArray(std::string_view key, Value& value) {
    uint32_t kind = 0;
    uint64_t size = 0;
    RETURN_IF_ERROR(Take(kind));
    RETURN_IF_ERROR(Take(size));
    if (static_cast<Kind>(kind) == Kind::kArray) {
      return Error("key ", Show(key), " is an array of arrays, which is not read");
    }
    if (size > kMaxArray) {
      return Error("key ", Show(key), " has ", size, " elements, more than ", kMaxArray);
    }
    if (size > file_.size() - at_) return Truncated();  // each has at least one byte
    if (static_cast<Kind>(kind) == Kind::kString) {
      std::vector<std::string_view> texts;
      texts.reserve(std::min<uint64_t>(size, (file_.size() - at_) / sizeof(uint64_t)));
      for (uint64_t i = 0; i < size; ++i) RETURN_IF_ERROR(TakeString(texts.emplace_back()));
      value = std::move(texts);
      return absl::OkStatus();
    }
    std::vector<double> numbers;
    numbers.reserve(size);
    for (uint64_t i = 0; i < size; ++i) {
      Value element;
      RETURN_IF_ERROR(TakeScalar(static_cast<Kind>(kind), element));
      numbers.push_back(std::visit(
          [](const auto& v) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) {
              return static_cast<double>(v);
            } else {
              return 0.0;
            }
          },
          element));
    }
    value = std::move(numbers);
    return absl::OkStatus();
  }

  absl::Status ReadMetadata(uint64_t num_keys, Contents& contents) {
    absl::flat_hash_set<std::string_view> seen;
    for (uint64_t i = 0; i < num_keys; ++i) {
      auto& [key, value] = contents.metadata.emplace_back();
      uint32_t kind = 0;
      RETURN_IF_ERROR(TakeName(key, "key"));
      RETURN_IF_ERROR(Take(kind));
      if (!seen.insert(key).second) return Error("has the key ", Show(key), " twice");
      const bool is_array = static_cast<Kind>(kind) == Kind::kArray;
      RETURN_IF_ERROR(is_array ? TakeArray(key, value)
                               : TakeScalar(static_cast<Kind>(kind), value));
      if (key != "general.alignment") continue;
      const int64_t* const alignment = std::get_if<int64_t>(&value);
      if (alignment == nullptr || *alignment < 1 ||
          *alignment > static_cast<int64_t>(kMaxAlignment) ||
          !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
        return Error("general.alignment must be a power of two up to ", kMaxAlignment);
      }
      alignment_ = static_cast<uint64_t>(*alignment);
    }
    return absl::OkStatus();
  }

  // Reads one entry; `offset` is that of its bytes from the end of the header.
  absl::Status ReadEntry(Tensor& tensor, uint64_t& offset, uint64_t& size) {
    RETURN_IF_ERROR(TakeName(tensor.name, "tensor"));
    const std::string shown = Show(tensor.name);
    uint32_t num_dimensions = 0, type = 0;
    RETURN_IF_ERROR(Take(num_dimensions));
    if (num_dimensions < 1 || num_dimensions > kMaxDimensions) {
      return Error("tensor ", shown, " has ", num_dimensions, " dimensions, 1 to ", kMaxDimensions,
                   " are read");
    }
    uint64_t elements = 1;
    for (uint32_t i = 0; i < num_dimensions; ++i) {
      uint64_t dimension = 0;
      RETURN_IF_ERROR(Take(dimension));
      constexpr uint64_t kMost = std::numeric_limits<int64_t>::max() / 16;
      if (dimension == 0 || dimension > kMost / elements) {
        return Error("tensor ", shown, " has a dimension of ", dimension);
      }
      elements *= dimension;
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dimension));
    }
    RETURN_IF_ERROR(Take(type));
    RETURN_IF_ERROR(Take(offset));
    tensor.type = FindTensorType(type);
    if (tensor.type == nullptr) {
      return Error("tensor ", shown, " is of type ", type, ", which is not known");
    }
    if (tensor.shape.back() % tensor.type->block != 0) {
      return Error("tensor ", shown, " has rows of ", tensor.shape.back(), " elements; ",
                   Absl(tensor.type->name), " has blocks of ", tensor.type->block);
    }
    size = elements / static_cast<uint64_t>(tensor.type->block) *
           static_cast<uint64_t>(tensor.type->bytes);
    if (offset % alignment_ != 0) {
      return Error("tensor ", shown, " is at ", offset, ", which is no multiple of ", alignment_);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensors(uint64_t num_tensors, Contents& contents) {
    struct Place {
      uint64_t offset = 0, size = 0;
      size_t tensor = 0;
    };
    std::vector<Place> places;
    absl::flat_hash_set<std::string_view> seen;
    for (uint64_t i = 0; i < num_tensors; ++i) {
      Place& place = places.emplace_back();
      place.tensor = contents.tensors.size();
      Tensor& tensor = contents.tensors.emplace_back();
      RETURN_IF_ERROR(ReadEntry(tensor, place.offset, place.size));
      if (!seen.insert(tensor.name).second) {
        return Error("has the tensor ", Show(tensor.name), " twice");
      }
    }
    const uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t available = data < file_.size() ? file_.size() - data : 0;
    std::sort(places.begin(), places.end(),
              [](const Place& a, const Place& b) { return a.offset < b.offset; });
    uint64_t end = 0;
    for (const Place& place : places) {
      Tensor& tensor = contents.tensors[place.tensor];
      if (place.offset > available || place.size > available - place.offset) {
        return Error("tensor ", Show(tensor.name), " would end beyond the file's ", file_.size(),
                     " bytes; is it truncated?");
      }
      if (place.offset < end) return Error("tensor ", Show(tensor.name), " overlaps another one");
      end = place.offset + place.size;
      tensor.bytes = file_.subspan(data + place.offset, place.size);
    }
    return absl::OkStatus();
  }

  const std::string_view file_name_;
  const std::span<const uint8_t> file_;
  size_t at_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
};

}  // namespace

absl::StatusOr<Contents> ParseGguf(std::string_view file_name, std::span<const uint8_t> file) {
  return Reader(file_name, file).Read();
}

}  // namespace continuo::gguf
