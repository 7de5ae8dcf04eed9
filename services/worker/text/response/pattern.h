// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::text {

struct PatternNode;

// A regular expression of Python's that opens or closes a part of an answer, matched at one place
// of a text whose end may not be there yet. It has literals, classes, groups, alternatives, greedy
// and lazy repetition, ^ and $; "." is any byte, and \w also every byte of a character beyond
// ASCII. Look-around, back references, \b and flags are InvalidArgument. Immutable, cheap to copy
// and thread-safe.
class Pattern {
 public:
  // A match is at most this long; what could only become a longer one is none.
  static constexpr size_t kMaxLength = 1024;
  // Instructions of a compiled pattern.
  static constexpr size_t kMaxSize = 4096;

  // Matches nothing.
  Pattern() = default;

  static absl::StatusOr<Pattern> Compile(std::string_view regex);
  // Any of the strings, the longest where several match.
  static Pattern OfLiterals(std::vector<std::string> literals);

  struct Match {
    // kPending: more text decides. A match with more text to come is final.
    enum class State { kNone, kPending, kMatch };
    State state = State::kNone;
    size_t length = 0;
    // Name and text of each named group that took part.
    std::vector<std::pair<std::string, std::string>> groups;

    std::string_view group(std::string_view name) const;
  };
  // Matches at the beginning of `text`, preferring what Python's regular expressions prefer. With
  // `at_start` the text begins there (^), with `at_end` nothing follows it. An empty match counts
  // only at the start and at the end.
  Match MatchAt(std::string_view text, bool at_start, bool at_end) const;

  // Returns whether a match may begin with this byte, or be empty.
  bool MayBeginWith(char c) const { return first_[static_cast<uint8_t>(c)]; }
  bool has_group(std::string_view name) const;
  // RegexOf and ExampleOf (pattern_text.h) what was compiled.
  const std::string& regex() const;
  const std::optional<std::string>& example() const;

  // The pattern before and after its named group, which has to stand by itself and be ".*?". The
  // pattern before it has the other groups.
  struct Around;
  static absl::StatusOr<Around> SplitAt(std::string_view regex, std::string_view group);

 private:
  struct Instruction {
    enum class Op : uint8_t { kClass, kSplit, kJump, kSave, kBegin, kEnd, kMatch };
    Op op = Op::kMatch;
    uint32_t a = 0, b = 0;  // targets; kClass: index of the class; kSave: slot
  };
  struct Program {
    std::vector<Instruction> code;
    std::vector<std::bitset<256>> classes;
    std::vector<std::string> groups;  // slots 2i and 2i + 1
    std::string regex;
    std::optional<std::string> example;
  };
  struct Thread;

  static absl::StatusOr<Pattern> FromNode(const PatternNode& node);
  static void Emit(const PatternNode& node, Program& program);
  void Add(uint32_t at, std::vector<int> saved, size_t position, bool at_start, bool at_end,
           std::vector<bool>& seen, std::vector<Thread>& threads) const;
  void FindFirst();

  std::shared_ptr<const Program> program_;
  std::bitset<256> first_;
};

struct Pattern::Around {
  Pattern before, after;
};

}  // namespace continuo::text
