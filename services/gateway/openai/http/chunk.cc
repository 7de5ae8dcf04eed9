// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/chunk.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

}  // namespace

std::string_view Chunk::Close() {
  std::array<char, kMaxSizeDigits> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), size(), 16).ptr;
  const auto num_digits = static_cast<size_t>(end - digits.data());
  const size_t begin = kHeaderRoom - kLineEnd.size() - num_digits;
  std::copy(digits.data(), end, bytes_.data() + begin);
  kLineEnd.copy(bytes_.data() + begin + num_digits, kLineEnd.size());
  bytes_.append(kLineEnd);
  return std::string_view(bytes_).substr(begin);
}

}  // namespace continuo::gateway::openai
