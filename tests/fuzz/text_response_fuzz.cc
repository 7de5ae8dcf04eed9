// SPDX-License-Identifier: Apache-2.0
// Answers of any bytes, in each format. First byte: which format; second: whether calls and
// thoughts are wanted, and the seed of where the answer is divided. Between bytes 0 and 1 is a
// special token.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/worker/text/response/response_formats.h"
#include "services/worker/text/response/response_parser.h"

namespace {

using continuo::text::ResponseEvent;
using continuo::text::ResponseEvents;
using Kind = ResponseEvent::Kind;

const std::vector<continuo::text::ResponseFormat>& Formats() {
  static const auto* const kFormats = [] {
    auto* formats = new std::vector<continuo::text::ResponseFormat>;
    for (const std::string_view name : continuo::text::ResponseFormatNames()) {
      formats->push_back(continuo::text::NamedResponseFormat(name, "<think>").value());
    }
    return formats;
  }();
  return *kFormats;
}

// Pushes text as it is or, to `divide` it, at most 16 bytes at a time; special tokens as a whole.
ResponseEvents Parse(const continuo::text::ResponseTemplate& format, std::string_view answer,
                     continuo::text::ResponseParser::Options options, bool divide, uint32_t seed) {
  continuo::text::ResponseParser parser(&format, options);
  ResponseEvents events;
  while (!answer.empty()) {
    if (answer.front() == '\0') {
      const size_t end = std::min(answer.find('\1'), answer.size());
      parser.PushSpecial(answer.substr(1, end - 1), &events);
      answer.remove_prefix(std::min(end + 1, answer.size()));
      continue;
    }
    size_t length = std::min(answer.find('\0'), answer.size());
    seed = seed * 1664525 + 1013904223;
    if (divide) length = std::min<size_t>(length, 1 + (seed >> 28));
    parser.Push(answer.substr(0, length), &events);
    answer.remove_prefix(length);
  }
  parser.Finish(&events);
  return events;
}

// Returns whether `text` is a JSON object, or nothing where this parser does not tell: where bytes
// are not of ASCII, and for numbers that a double cannot hold, which are JSON, too.
std::optional<bool> IsObject(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= 0; })) return std::nullopt;
  try {
    return nlohmann::json::parse(text).is_object();
  } catch (const nlohmann::json::out_of_range&) {
    return std::nullopt;
  } catch (const nlohmann::json::parse_error&) {
    return false;
  }
}

// Checks the order of events, and that the arguments of a whole call are a JSON object.
void Check(const ResponseEvents& events) {
  bool in_call = false;
  std::string arguments;
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case Kind::kCallBegin:
        CONTINUO_CHECK(!in_call && !event.bytes.empty());
        in_call = true;
        arguments.clear();
        break;
      case Kind::kArguments:
        CONTINUO_CHECK(in_call);
        arguments += event.bytes;
        break;
      case Kind::kCallEnd:
        CONTINUO_CHECK(in_call);
        in_call = false;
        CONTINUO_CHECK(IsObject(arguments).value_or(event.whole) == event.whole);
        break;
      default:
        CONTINUO_CHECK(!in_call);
    }
  }
  CONTINUO_CHECK(!in_call);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto& format = Formats()[data[0] % Formats().size()].response_template;
  const continuo::text::ResponseParser::Options options = {.calls = (data[1] & 1) == 0,
                                                           .reasoning = (data[1] & 2) == 0};
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  const ResponseEvents whole = Parse(format, answer, options, /*divide=*/false, 0);
  Check(whole);
  CONTINUO_CHECK(Parse(format, answer, options, /*divide=*/true, data[1]) == whole);
  return 0;
}
