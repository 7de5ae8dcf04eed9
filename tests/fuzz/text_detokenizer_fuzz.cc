// SPDX-License-Identifier: Apache-2.0
// Tokens and stop strings of any bytes. First byte: how many stop strings (up to 3), whether they
// are part of the text, and from which token on they count; then the stop strings, each with its
// length in front; the rest is one token a byte.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/worker/text/detokenizer.h"
#include "tests/testing/text_files.h"

namespace {

const continuo::text::TextModel& Model() {
  static const auto* const kModel = continuo::testing::OpenBytes().release();
  return *kModel;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto take = [&rest](size_t n) {
    const std::string_view taken = rest.substr(0, n);
    rest.remove_prefix(taken.size());
    return taken;
  };
  const uint8_t head = rest.empty() ? 0 : static_cast<uint8_t>(take(1)[0]);
  std::vector<std::string> stops;
  for (int n = head & 3; n > 0 && !rest.empty(); --n) {
    const std::string_view stop = take(static_cast<uint8_t>(take(1)[0]) % 8);
    if (!stop.empty() && continuo::IsUtf8(stop)) stops.emplace_back(stop);
  }
  const bool include_stop = (head & 4) != 0;
  const size_t min_tokens = head >> 4;

  std::vector<int32_t> ids;
  for (const char c : rest) ids.push_back(static_cast<uint8_t>(c));
  const std::string whole = Model().Decode(ids, false).value();
  CONTINUO_CHECK(continuo::IsUtf8(whole));

  continuo::text::Detokenizer detokenizer(&Model(), stops, include_stop);
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    continuo::text::Detokenizer copy = detokenizer;
    const auto piece = detokenizer.Push(ids[i], i >= min_tokens);
    CONTINUO_CHECK(copy.Push(ids[i], i >= min_tokens).text == piece.text);
    CONTINUO_CHECK(continuo::IsUtf8(piece.text));
    text += piece.text;
    if (piece.matched_stop >= 0) {
      const std::string& stop = stops[piece.matched_stop];
      CONTINUO_CHECK(whole.starts_with(include_stop ? text : text + stop));
      CONTINUO_CHECK(!include_stop || text.ends_with(stop));
      return 0;
    }
    CONTINUO_CHECK(whole.starts_with(text));
  }
  text += detokenizer.Flush();
  CONTINUO_CHECK(text == whole);
  return 0;
}
