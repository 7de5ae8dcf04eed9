// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace continuo::gateway::openai {

// A chunk of a body of unknown length (RFC 9112, section 7.1). Room for its size is kept before the
// text, so that the text is not copied to be sent. Not thread-safe.
class Chunk {
 public:
  Chunk() { clear(); }
  explicit Chunk(std::string_view text) : Chunk() { bytes_.append(text); }

  // Text is appended to this string, whose first bytes are the chunk's own.
  std::string* out() { return &bytes_; }
  std::string_view text() const { return std::string_view(bytes_).substr(kHeaderRoom); }
  bool empty() const { return size() == 0; }
  size_t size() const { return bytes_.size() - kHeaderRoom; }
  void clear() { bytes_.assign(kHeaderRoom, ' '); }

  // The chunk as it is sent, valid until it changes. Nothing can be appended until it is cleared.
  std::string_view Close();

 private:
  static constexpr size_t kMaxSizeDigits = 2 * sizeof(size_t);
  static constexpr size_t kHeaderRoom = kMaxSizeDigits + 2;  // a line

  std::string bytes_;
};

}  // namespace continuo::gateway::openai
