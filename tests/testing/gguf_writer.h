// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace continuo::testing {

// Writes the bytes of a GGUF file of version 3 (ggml's specification of GGUF), also of files that
// no program should read.
class GgufWriter {
 public:
  template <typename T>
  GgufWriter& Key(std::string_view key, const T& value) {
    ++num_keys_;
    PutText(metadata_, key);
    Put(metadata_, KindOf<T>());
    PutValue(value);
    return *this;
  }
  // Adds a key whose value's type and bytes are as given.
  GgufWriter& RawKey(std::string_view key, uint32_t kind, std::string_view bytes) {
    ++num_keys_;
    PutText(metadata_, key);
    Put(metadata_, kind);
    metadata_ += bytes;
    return *this;
  }
  // `dimensions` are in GGUF's order, that of a row first. The bytes go behind those of earlier
  // tensors, at a multiple of 32, unless there is an offset.
  GgufWriter& Tensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                     std::string_view bytes, int64_t offset = -1) {
    ++num_tensors_;
    PutText(infos_, name);
    Put(infos_, static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t dimension : dimensions) Put(infos_, dimension);
    Put(infos_, type);
    data_.resize((data_.size() + 31) / 32 * 32);
    Put(infos_, offset >= 0 ? static_cast<uint64_t>(offset) : uint64_t{data_.size()});
    data_ += bytes;
    return *this;
  }
  std::string Bytes(uint32_t version = 3) const {
    std::string file = "GGUF";
    Put(file, version);
    Put(file, num_tensors_);
    Put(file, num_keys_);
    file += metadata_ + infos_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

 private:
  template <typename T>
  static void Put(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  }
  static void PutText(std::string& out, std::string_view text) {
    Put(out, uint64_t{text.size()});
    out += text;
  }
  template <typename T>
  static uint32_t KindOf() {
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, uint64_t>) return 10;
    if constexpr (std::is_same_v<T, double>) return 12;
    if constexpr (std::is_convertible_v<T, std::string_view>) return 8;
    return 9;
  }
  template <typename T>
  void PutValue(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      Put(metadata_, static_cast<uint8_t>(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      Put(metadata_, value);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      PutText(metadata_, value);
    } else {
      Put(metadata_, KindOf<typename T::value_type>());
      Put(metadata_, uint64_t{value.size()});
      for (const auto& element : value) PutValue(element);
    }
  }

  uint64_t num_keys_ = 0, num_tensors_ = 0;
  std::string metadata_, infos_, data_;
};

}  // namespace continuo::testing
