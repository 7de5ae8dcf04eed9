// SPDX-License-Identifier: Apache-2.0
// Tools of any bytes, in each format. First byte: the format; second: what is wanted of the answer,
// whether tools are strict, and whether the grammar is compiled and gone through; the rest: names
// and schemas of tools in turn, with a zero byte behind each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/worker/text/calls/call_grammar.h"
#include "services/worker/text/calls/lark.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/response/response_parser.h"
#include "tests/testing/text_files.h"

namespace {

namespace text = continuo::text;

const text::TextModel& Model() {
  static const auto* const kModel = continuo::testing::OpenBytes().release();
  return *kModel;
}

const std::vector<text::ResponseFormat>& Formats() {
  static const auto* const kFormats = [] {
    auto* formats = new std::vector<text::ResponseFormat>;
    for (const std::string_view name : text::ResponseFormatNames()) {
      formats->push_back(text::NamedResponseFormat(name, "").value());
    }
    return formats;
  }();
  return *kFormats;
}

// Goes some way through the grammar, and reads what comes out if that is an answer.
void GoThrough(const text::ResponseFormat& format, const std::vector<text::CallTool>& tools,
               const std::string& lark, bool is_required, uint32_t seed) {
  const auto grammar = text::Grammar::Compile(
      Model(), {.kind = text::GrammarSource::Kind::kLark, .text = lark, .is_own_lark = true});
  if (!grammar.ok()) {
    // A schema may be none that the compiler takes; the frame around it always is.
    CONTINUO_CHECK(grammar.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  auto matcher = (*grammar)->NewMatcher();
  if (!matcher.ok()) return;
  std::string answer;
  for (int step = 0; step < 100 && !(*matcher)->CanEnd(); ++step) {
    std::vector<uint32_t> mask(8, ~uint32_t{0});
    (*matcher)->FillMask(mask);
    if (!(*matcher)->status().ok()) return;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < 256; ++id) {
      if (mask[id / 32] >> (id % 32) & 1) allowed.push_back(id);
    }
    if (allowed.empty()) return;
    seed = seed * 1664525 + 1013904223;
    const int32_t id = allowed[(seed >> 8) % allowed.size()];
    CONTINUO_CHECK((*matcher)->Accept(id));
    answer += static_cast<char>(id);
  }
  if (!(*matcher)->CanEnd() || !is_required) return;
  text::ParameterTypes types;
  for (const text::CallTool& tool : tools) types.Add(tool.name, tool.parameters);
  text::ResponseParser parser(&format.response_template, {.types = &types});
  text::ResponseEvents events;
  parser.Push(answer, &events);
  parser.Finish(&events);
  bool called = false;
  for (const text::ResponseEvent& event : events) {
    CONTINUO_CHECK(event.kind != text::ResponseEvent::Kind::kText);
    if (event.kind != text::ResponseEvent::Kind::kCallEnd) continue;
    CONTINUO_CHECK(event.whole);
    called = true;
  }
  CONTINUO_CHECK(called);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const text::ResponseFormat& format = Formats()[data[0] % Formats().size()];
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<text::CallTool> tools;
  const auto take = [&rest] {
    const std::string_view taken = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(taken.size() + 1, rest.size()));
    return std::string(taken);
  };
  while (!rest.empty() && tools.size() < 8) {
    std::string name = take();
    tools.push_back({std::move(name), take(), (data[1] & 4) != 0});
  }
  text::CallGrammarOptions options;
  options.choice = static_cast<text::CallGrammarOptions::Choice>(data[1] % 3);
  options.parallel = (data[1] & 8) != 0;
  if (!tools.empty()) options.name = tools.back().name;
  const auto lark = text::CallGrammar(format, tools, {}, options);
  if (!lark.ok()) {
    CONTINUO_CHECK(lark.status().code() == absl::StatusCode::kInvalidArgument ||
                   lark.status().code() == absl::StatusCode::kUnimplemented);
    return 0;
  }
  CONTINUO_CHECK(lark->size() < text::Lark::kMaxBytes * 2 && continuo::IsUtf8(*lark));
  CONTINUO_CHECK(text::CallGrammar(format, tools, {}, options) == lark);
  if ((data[1] & 64) == 0) return 0;
  GoThrough(format, tools, *lark, options.choice != text::CallGrammarOptions::Choice::kAuto,
            data[1]);
  return 0;
}
