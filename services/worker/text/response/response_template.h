// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/text/response/pattern.h"

namespace continuo::text {

// A kind of part that an answer has, how it begins and ends, and how calls are written in it.
struct ResponseField {
  enum class Channel { kText, kReasoning, kCalls };
  // How the arguments of a call are written: as JSON, as tags with a name each, or as Python's
  // keyword arguments.
  enum class Syntax { kJson, kTags, kPython };

  std::string name;
  Channel channel = Channel::kText;
  bool has_open = false;  // without: what no other field has
  bool has_close = false;
  Pattern open, close;
  // White space beside the markers is not part of it.
  bool strip = true;

  // kCalls.
  Syntax syntax = Syntax::kJson;
  // The call's name is a group of `open`, else the value of `name_key` in the JSON object.
  bool name_in_open = false;
  std::string name_key;
  // The arguments are the value of this key, or the whole where it is empty.
  std::string arguments_key;
  bool unquoted_keys = false;
  std::vector<std::pair<std::string, std::string>> string_delimiters;
  Pattern tag_open, tag_close;  // kTags; tag_open has the group "key"
};

// How a model writes thoughts, text and calls in one answer: the declarative `response_template` of
// transformers, version 1, of which parse_response is the definition. Immutable and thread-safe.
//
// `transform` has to give a function's name and arguments; of `content`, text, json and xml-inline
// are read, the latter with a tag_pattern that has (?P<value>.*?) between its other parts. Anything
// else is InvalidArgument, which names it. Extensions: `content` "python" (`f(a=1)`, in a list or
// not), the top-level list `ignore` of patterns that are no part of the text, and the top-level
// `text_header_pattern`, which stands before text and is no part of it either.
struct ResponseTemplate {
  // At most this many bytes of JSON.
  static constexpr size_t kMaxBytes = 64 << 10;

  static absl::StatusOr<ResponseTemplate> Parse(std::string_view json);

  bool has(ResponseField::Channel channel) const {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const ResponseField& field) { return field.channel == channel; });
  }

  std::vector<ResponseField> fields;
  int implicit = -1;  // index of the field without an open
  bool has_anchor = false;
  Pattern anchor;  // the beginning of an answer, in the prompt
  std::vector<Pattern> ignored;
  bool has_text_header = false;
  Pattern text_header;
};

}  // namespace continuo::text
