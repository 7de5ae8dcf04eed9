// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/worker/text/response/response_formats.h"

namespace continuo::text {

// Tells how calls stand in an answer: `before`, then calls with `between` between them, then
// `after`. These are texts in which some bytes are places that something else takes.
struct CallForm {
  static constexpr char kName = '\1';       // the function's name
  static constexpr char kArguments = '\2';  // all arguments
  static constexpr char kKey = '\3';        // a parameter's name
  static constexpr char kValue = '\4';      // and its value
  static constexpr char kIsString = '\5';   // "true" where that is text as it is, or "false"
  static constexpr char kNumber = '\6';     // a number that the format gives its calls

  const ResponseField* field = nullptr;  // the format's field of calls
  std::string before, call, between, after;
  std::string parameter;  // a parameter and its value in Syntax::kTags, else empty
  // The name is in a string of JSON.
  bool name_is_json = false;
  // The format has one call an answer.
  bool only_one = false;
  // Calls have no marker of their own, and begin the answer. A regular expression of Rust's for
  // what else may begin one; empty: nothing.
  bool only_begins = false;
  std::string inner_sign;
  // An answer of text begins with `text_begin`, and text that a call follows stands between
  // `aside_begin` and `aside_end`. Empty: text begins the answer.
  std::string text_begin, aside_begin, aside_end;
  // Begins the rest of an answer, where a part of it was before.
  std::string next_part;
};

// The form of a format's calls, as its models write them: the spelling of the chat template's own
// call, where it has shown one. kUnimplemented is the status of a format without calls, and of a
// model's own response_template that cannot be turned around; its message tells why.
absl::StatusOr<CallForm> FindCallForm(const ResponseFormat& format);

// A text of the form with these in its places. `arguments` are written as they are.
std::string FillForm(std::string_view form, std::string_view name, std::string_view arguments,
                     std::string_view key = {}, std::string_view value = {});

}  // namespace continuo::text
