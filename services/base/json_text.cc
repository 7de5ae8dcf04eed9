// SPDX-License-Identifier: Apache-2.0
#include "services/base/json_text.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/foreign_file.h"
#include "services/base/utf8.h"

namespace continuo {
namespace {

constexpr size_t kShownBytes = 60;
constexpr size_t kMessageBytes = 200;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// A quoted beginning of `text` as ASCII.
std::string Show(std::string_view text) {
  const std::string shown = absl::CHexEscape(View(text.substr(0, kShownBytes)));
  return absl::StrCat("\"", shown, text.size() > kShownBytes ? "..." : "", "\"");
}

// nlohmann's message without its place, and without what was read last, which may be anything:
// "[json.exception.parse_error.101] parse error at line 2, column 3: syntax error while parsing
// value - invalid literal; last read: '1x'; expected ','".
std::string MessageOf(std::string_view what) {
  if (const size_t tag = what.find("] "); tag != what.npos) what.remove_prefix(tag + 2);
  if (const size_t place = what.find(": ");
      what.starts_with("parse error at") && place != what.npos) {
    what.remove_prefix(place + 2);
  }
  std::string message(what);
  if (const size_t last = what.find("; last read: "); last != what.npos) {
    const size_t expected = what.rfind("; expected ");
    message.resize(last);
    if (expected != what.npos && expected > last) message += what.substr(expected);
  }
  return ToValidUtf8(message.substr(0, kMessageBytes));
}

// Reads a text and keeps, outside of itself, how far it came: parsers copy their iterators.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* count_;
};

// Takes the events of nlohmann's parser, which says what is wrong with the text.
class Checker : public nlohmann::json::json_sax_t {
 public:
  Checker(std::string_view text, int max_depth, int64_t max_values)
      : text_(text), max_depth_(max_depth), max_values_(max_values) {}

  size_t* num_read() { return &num_read_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(int64_t) override { return Count(); }
  bool number_unsigned(uint64_t) override { return Count(); }
  bool number_float(double, const std::string&) override { return Count(); }
  bool string(std::string&) override { return Count(); }
  bool binary(nlohmann::json::binary_t&) override { return Count(); }
  bool start_object(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    const size_t line = LineOf(num_read_);
    const auto [it, is_new] = open_.back().emplace(name, line);
    if (is_new) return true;
    return Fail(
        num_read_,
        absl::StrCat("field ", Show(name), " is there twice",
                     it->second == line ? "" : absl::StrCat(", first in line ", it->second)));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // `position` counts the byte that did not fit.
    size_t at = position == 0 ? 0 : std::min(position, text_.size()) - (position <= text_.size());
    if (at > 0 && text_[at - 1] == '-' && text_.substr(at).starts_with("Inf")) --at;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text_.substr(at).starts_with(word)) {
        return Fail(at + 1, absl::StrCat(View(word), " is no JSON; write a number or null"));
      }
    }
    return Fail(at + 1, absl::StrCat("not JSON: ", MessageOf(error.what())));
  }

 private:
  bool Count() {
    if (++num_values_ <= max_values_) return true;
    return Fail(num_read_, absl::StrCat("more than ", max_values_, " values"));
  }

  bool Open() {
    if (!Count()) return false;
    open_.emplace_back();
    if (open_.size() <= static_cast<size_t>(max_depth_)) return true;
    return Fail(num_read_, absl::StrCat("nested deeper than ", max_depth_, " levels"));
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // The line of byte `position`, counted from 1 as the line is. Calls go forward through the text.
  size_t LineOf(size_t position) {
    position = std::min(position, text_.size());
    for (; counted_ < position; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    }
    return line_;
  }

  bool Fail(size_t position, const std::string& problem) {
    // An end of line that did not fit belongs to the line that it ends.
    const size_t line = LineOf(position == 0 ? 0 : position - 1);
    const size_t column = position > line_begin_ ? position - line_begin_ : 1;
    problem_ = absl::StrCat("line ", line, ", column ", column, ": ", problem);
    return false;
  }

  const std::string_view text_;
  const int max_depth_;
  const int64_t max_values_;
  int64_t num_values_ = 0;
  size_t num_read_ = 0;
  std::vector<absl::flat_hash_map<std::string, size_t>> open_;  // of each object: a field's line
  size_t counted_ = 0, line_ = 1, line_begin_ = 0;
  std::string problem_;
};

}  // namespace

absl::Status CheckJson(std::string_view name, std::string_view text, int max_depth,
                       int64_t max_values) {
  const std::string foreign = ForeignFile(text.substr(0, kForeignHeadBytes));
  if (!foreign.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(View(name), ": ", foreign));
  }
  Checker checker(text, max_depth, max_values);
  nlohmann::json::sax_parse(CountingIterator(text.data(), checker.num_read()),
                            CountingIterator(text.data() + text.size(), checker.num_read()),
                            &checker);
  if (checker.problem().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(View(name), ": ", checker.problem()));
}

}  // namespace continuo
