// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/module_patterns.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace continuo::quantised {
namespace {

constexpr size_t kMaxPatterns = 1 << 20, kMaxExpressions = 256;
constexpr int64_t kExpressionBytes = 1 << 20;
constexpr size_t kMaxShown = 80;
// The most dots of a pattern that is a part of names, so that few parts of a long name are looked
// up.
constexpr std::ptrdiff_t kMaxDots = 31;
constexpr std::string_view kExpression = "re:";

bool IsExpression(std::string_view text) {
  return text.find_first_of("*+?[](){}|^$\\") != text.npos;
}

}  // namespace

absl::StatusOr<ModulePatterns> ModulePatterns::Make(Kind kind, const std::string& field,
                                                    const nlohmann::json& list) {
  ModulePatterns patterns;
  patterns.kind_ = kind;
  if (list.is_null()) return patterns;
  const auto is_text = [](const nlohmann::json& entry) { return entry.is_string(); };
  if (!list.is_array() || list.size() > kMaxPatterns ||
      !std::all_of(list.begin(), list.end(), is_text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": it must be a list of at most ", kMaxPatterns, " names"));
  }
  for (const nlohmann::json& entry : list) {
    std::string text = entry.get<std::string>();
    const bool is_expression =
        kind == Kind::kTargets ? text.starts_with(kExpression) : IsExpression(text);
    if (!is_expression) {
      if (text.empty()) continue;
      if (kind == Kind::kParts && std::ranges::count(text, '.') > kMaxDots) {
        return absl::InvalidArgumentError(absl::StrCat(field, ": the name \"",
                                                       text.substr(0, kMaxShown),
                                                       "\" has more than ", kMaxDots, " dots"));
      }
      patterns.longest_name_ = std::max(patterns.longest_name_, text.size());
      patterns.names_.insert(std::move(text));
      continue;
    }
    const std::string expression = kind == Kind::kTargets
                                       ? text.substr(kExpression.size())
                                       : absl::StrCat("(?:^|.*\\.)(?:", text, ")(?:\\.|$)");
    re2::RE2::Options options;
    options.set_log_errors(false);
    options.set_max_mem(kExpressionBytes);
    auto compiled = std::make_shared<const re2::RE2>(expression, options);
    if (!compiled->ok()) {
      return absl::UnimplementedError(
          absl::StrCat(field, ": the regular expression \"", text.substr(0, kMaxShown),
                       "\" is not known: ", compiled->error().substr(0, kMaxShown)));
    }
    patterns.expressions_.push_back(std::move(compiled));
    if (patterns.expressions_.size() > kMaxExpressions) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": has more than ", kMaxExpressions, " regular expressions"));
    }
  }
  return patterns;
}

bool ModulePatterns::HasPart(std::string_view module) const {
  if (names_.empty()) return false;
  for (size_t begin = 0; begin != module.npos;) {
    size_t end = begin;
    for (std::ptrdiff_t dots = 0; dots <= kMaxDots && end != module.npos; ++dots) {
      end = module.find('.', dots == 0 ? begin : end + 1);
      const std::string_view part = module.substr(begin, end - begin);
      if (part.size() > longest_name_) break;
      if (names_.contains(absl::string_view(part.data(), part.size()))) return true;
    }
    const size_t dot = module.find('.', begin);
    begin = dot == module.npos ? dot : dot + 1;
  }
  return false;
}

ModulePatterns::Match ModulePatterns::Find(std::string_view module) const {
  const std::string name(module);
  if (kind_ == Kind::kTargets ? names_.contains(name) : HasPart(module)) return Match::kName;
  for (const auto& expression : expressions_) {
    const re2::StringPiece text(name);
    if (expression->Match(text, 0, text.size(), re2::RE2::ANCHOR_START, nullptr, 0)) {
      return Match::kExpression;
    }
  }
  if (kind_ != Kind::kTargets) return Match::kNone;
  const bool is_embedding = module.ends_with("embed_tokens");
  const bool is_class = names_.contains(is_embedding ? "Embedding" : "Linear");
  return is_class ? Match::kClass : Match::kNone;
}

}  // namespace continuo::quantised
