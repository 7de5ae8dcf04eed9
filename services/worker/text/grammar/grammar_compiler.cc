// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/grammar/grammar_compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace continuo::text {
namespace {

// The source itself rather than a digest: two sources that share a key would share an answer.
std::string KeyOf(const GrammarSource& source) {
  std::string key =
      absl::StrCat(static_cast<int>(source.kind), source.is_own_lark, ":", source.around.size(),
                   ":", source.around, source.text.size(), ":", source.text);
  for (const std::string& option : source.options)
    absl::StrAppend(&key, option.size(), ":", option);
  return key;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCompiler::Compile(
    const GrammarSource& source) {
  std::string key = KeyOf(source);
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      ++counters_.hits;
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->grammar;
    }
  }
  const absl::Time start = absl::Now();
  auto grammar = Grammar::Compile(*model_, source);
  const absl::Duration time = absl::Now() - start;
  absl::MutexLock lock(&mutex_);
  ++counters_.compiles;
  counters_.compile_time += time;
  if (!grammar.ok()) {
    ++counters_.refusals;
    return grammar.status();
  }
  const size_t source_bytes = key.size();
  Keep({.key = std::move(key), .source_bytes = source_bytes, .grammar = *grammar});
  return grammar;
}

void GrammarCompiler::Keep(Entry entry) {
  if (by_key_.contains(entry.key)) return;
  source_bytes_ += entry.source_bytes;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  while (entries_.size() > options_.max_grammars || source_bytes_ > options_.max_source_bytes) {
    source_bytes_ -= entries_.back().source_bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

GrammarCompiler::Counters GrammarCompiler::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace continuo::text
