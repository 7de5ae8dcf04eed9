// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/pattern.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/text/response/pattern_parser.h"
#include "services/worker/text/response/pattern_text.h"

namespace continuo::text {

// A place in the program, and where the groups on the way to it began and ended.
struct Pattern::Thread {
  uint32_t at;
  std::vector<int> saved;
};

std::string_view Pattern::Match::group(std::string_view name) const {
  for (const auto& [key, value] : groups) {
    if (key == name) return value;
  }
  return {};
}

absl::StatusOr<Pattern> Pattern::Compile(std::string_view regex) {
  ASSIGN_OR_RETURN(const PatternNode node, ParsePattern(regex));
  return FromNode(node);
}

Pattern Pattern::OfLiterals(std::vector<std::string> literals) {
  // At most one of two that are equally long matches.
  std::sort(literals.begin(), literals.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  PatternNode node{.kind = PatternNode::Kind::kAlternatives};
  for (const std::string& literal : literals)
    node.children.push_back(PatternNode::Literal(literal));
  return FromNode(node).value_or(Pattern());
}

absl::StatusOr<Pattern> Pattern::FromNode(const PatternNode& node) {
  Program program;
  Emit(node, program);
  program.code.push_back({Instruction::Op::kMatch});
  if (program.code.size() > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pattern is too large, the limit is ", kMaxSize, " instructions"));
  }
  program.regex = RegexOf(node);
  program.example = ExampleOf(node);
  Pattern pattern;
  pattern.program_ = std::make_shared<const Program>(std::move(program));
  pattern.FindFirst();
  return pattern;
}

void Pattern::Emit(const PatternNode& node, Program& program) {
  using Op = Instruction::Op;
  using Kind = PatternNode::Kind;
  if (program.code.size() > kMaxSize) return;  // refused by the caller
  const auto here = [&] { return static_cast<uint32_t>(program.code.size()); };
  const auto emit = [&](Op op, uint32_t a = 0, uint32_t b = 0) {
    program.code.push_back({op, a, b});
    return here() - 1;
  };
  // Sets the preferred way of a split (`first`), or the other one.
  const auto aim = [&](uint32_t split, bool first, uint32_t target) {
    (first ? program.code[split].a : program.code[split].b) = target;
  };
  switch (node.kind) {
    case Kind::kEmpty:
      break;
    case Kind::kBegin:
      emit(Op::kBegin);
      break;
    case Kind::kEnd:
      emit(Op::kEnd);
      break;
    case Kind::kClass:
      emit(Op::kClass, static_cast<uint32_t>(program.classes.size()));
      program.classes.push_back(node.bytes);
      break;
    case Kind::kConcat:
      for (const PatternNode& child : node.children) Emit(child, program);
      break;
    case Kind::kAlternatives: {
      std::vector<uint32_t> jumps;
      for (size_t i = 0; i < node.children.size(); ++i) {
        const bool last = i + 1 == node.children.size();
        const uint32_t split = last ? 0 : emit(Op::kSplit);
        if (!last) aim(split, true, here());
        Emit(node.children[i], program);
        if (last) break;
        jumps.push_back(emit(Op::kJump));
        aim(split, false, here());
      }
      for (const uint32_t jump : jumps) program.code[jump].a = here();
      break;
    }
    case Kind::kGroup: {
      if (node.name.empty()) {
        Emit(node.children[0], program);
        break;
      }
      const auto slot = static_cast<uint32_t>(2 * program.groups.size());
      program.groups.push_back(node.name);
      emit(Op::kSave, slot);
      Emit(node.children[0], program);
      emit(Op::kSave, slot + 1);
      break;
    }
    case Kind::kRepeat: {
      for (int i = 0; i < node.min; ++i) Emit(node.children[0], program);
      if (node.max < 0) {
        const uint32_t split = emit(Op::kSplit);
        aim(split, node.greedy, here());
        Emit(node.children[0], program);
        emit(Op::kJump, split);
        aim(split, !node.greedy, here());
        break;
      }
      std::vector<uint32_t> splits;
      for (int i = node.min; i < node.max; ++i) {
        splits.push_back(emit(Op::kSplit));
        aim(splits.back(), node.greedy, here());
        Emit(node.children[0], program);
      }
      for (const uint32_t split : splits) aim(split, !node.greedy, here());
      break;
    }
  }
}

// Adds the threads that `at` leads to without taking a byte, the preferred first. Threads that can
// only go on with the end of the text stay at their kEnd while the end is not known.
void Pattern::Add(uint32_t at, std::vector<int> saved, size_t position, bool at_start, bool at_end,
                  std::vector<bool>& seen, std::vector<Thread>& threads) const {
  using Op = Instruction::Op;
  std::vector<Thread> pending = {{at, std::move(saved)}};
  while (!pending.empty()) {
    Thread thread = std::move(pending.back());
    pending.pop_back();
    if (seen[thread.at]) continue;
    seen[thread.at] = true;
    const Instruction& instruction = program_->code[thread.at];
    switch (instruction.op) {
      case Op::kJump:
        pending.push_back({instruction.a, std::move(thread.saved)});
        break;
      case Op::kSplit:
        pending.push_back({instruction.b, thread.saved});
        pending.push_back({instruction.a, std::move(thread.saved)});
        break;
      case Op::kSave:
        thread.saved[instruction.a] = static_cast<int>(position);
        pending.push_back({thread.at + 1, std::move(thread.saved)});
        break;
      case Op::kBegin:
        if (at_start && position == 0) pending.push_back({thread.at + 1, std::move(thread.saved)});
        break;
      case Op::kEnd:
        if (at_end) {
          pending.push_back({thread.at + 1, std::move(thread.saved)});
          break;
        }
        [[fallthrough]];
      case Op::kClass:
      case Op::kMatch:
        threads.push_back(std::move(thread));
        break;
    }
  }
}

Pattern::Match Pattern::MatchAt(std::string_view text, bool at_start, bool at_end) const {
  using Op = Instruction::Op;
  Match match;
  if (program_ == nullptr) return match;
  const std::vector<Instruction>& code = program_->code;
  if (text.size() > kMaxLength) {
    text = text.substr(0, kMaxLength);
    at_end = false;
  }
  const bool is_cut = text.size() == kMaxLength;
  std::vector<Thread> threads, next;
  std::vector<bool> seen(code.size());
  Add(0, std::vector<int>(2 * program_->groups.size(), -1), 0, at_start, at_end && text.empty(),
      seen, threads);
  std::vector<int> saved;
  bool found = false;
  size_t position = 0;
  for (;; ++position) {
    // Threads behind one that matches are not preferred to it.
    for (size_t i = 0; i < threads.size(); ++i) {
      if (code[threads[i].at].op != Op::kMatch) continue;
      found = true;
      match.length = position;
      saved = threads[i].saved;
      threads.resize(i);
      break;
    }
    if (threads.empty() || position == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[position]);
    next.clear();
    seen.assign(code.size(), false);
    for (Thread& thread : threads) {
      const Instruction& instruction = code[thread.at];
      if (instruction.op != Op::kClass || !program_->classes[instruction.a][byte]) continue;
      Add(thread.at + 1, std::move(thread.saved), position + 1, at_start,
          at_end && position + 1 == text.size(), seen, next);
    }
    threads.swap(next);
  }
  if (!threads.empty() && !at_end && !is_cut) {
    match.state = Match::State::kPending;
    return match;
  }
  // Without a byte only an anchor makes a match: others would match anywhere.
  if (!found || (match.length == 0 && !(at_start || at_end))) return match;
  match.state = Match::State::kMatch;
  for (size_t i = 0; i < program_->groups.size(); ++i) {
    if (saved[2 * i] < 0 || saved[2 * i + 1] < 0) continue;
    match.groups.emplace_back(program_->groups[i],
                              text.substr(saved[2 * i], saved[2 * i + 1] - saved[2 * i]));
  }
  return match;
}

void Pattern::FindFirst() {
  std::vector<bool> seen(program_->code.size());
  std::vector<Thread> threads;
  Add(0, std::vector<int>(2 * program_->groups.size(), -1), 0, /*at_start=*/true,
      /*at_end=*/false, seen, threads);
  for (const Thread& thread : threads) {
    const Instruction& instruction = program_->code[thread.at];
    if (instruction.op == Instruction::Op::kClass) {
      first_ |= program_->classes[instruction.a];
    } else {
      first_.set();
    }
  }
}

bool Pattern::has_group(std::string_view name) const {
  return program_ != nullptr && std::find(program_->groups.begin(), program_->groups.end(), name) !=
                                    program_->groups.end();
}

const std::string& Pattern::regex() const {
  static const std::string kNothing;
  return program_ == nullptr ? kNothing : program_->regex;
}

const std::optional<std::string>& Pattern::example() const {
  static const std::optional<std::string> kNone;
  return program_ == nullptr ? kNone : program_->example;
}

absl::StatusOr<Pattern::Around> Pattern::SplitAt(std::string_view regex, std::string_view group) {
  using Kind = PatternNode::Kind;
  ASSIGN_OR_RETURN(PatternNode node, ParsePattern(regex));
  if (node.kind == Kind::kConcat) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      const PatternNode& child = node.children[i];
      if (child.kind != Kind::kGroup || child.name != group) continue;
      const PatternNode* inside = &child.children[0];
      if (inside->kind == Kind::kConcat && inside->children.size() == 1) {
        inside = &inside->children[0];
      }
      if (inside->kind != Kind::kRepeat || inside->greedy || inside->min != 0 || inside->max >= 0 ||
          !inside->children[0].bytes.all()) {
        break;
      }
      PatternNode before{.kind = Kind::kConcat}, after{.kind = Kind::kConcat};
      before.children.assign(node.children.begin(), node.children.begin() + i);
      after.children.assign(node.children.begin() + i + 1, node.children.end());
      Around around;
      ASSIGN_OR_RETURN(around.before, FromNode(before));
      ASSIGN_OR_RETURN(around.after, FromNode(after));
      return around;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("the pattern \"", std::string(regex),
                                                 "\" has no \"(?P<", std::string(group),
                                                 ">.*?)\" between its other parts"));
}

}  // namespace continuo::text
