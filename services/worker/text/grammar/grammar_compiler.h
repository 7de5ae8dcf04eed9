// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/text_model.h"

namespace continuo::text {

// Compiles the grammars of one model, and keeps those that were used last. Thread-safe. Compiling
// takes from less than a millisecond up to seconds for the largest sources that are not refused, so
// it belongs to a thread that may take that long; it does not keep other threads from compiling.
class GrammarCompiler {
 public:
  struct Options {
    size_t max_grammars = 256;
    // The sources' bytes of all kept grammars together. A compiled grammar takes some hundred times
    // as much.
    size_t max_source_bytes = 1 << 20;
  };

  struct Counters {
    uint64_t compiles = 0;  // successful or not
    uint64_t refusals = 0;
    uint64_t hits = 0;
    absl::Duration compile_time;
  };

  // `model` must outlive the compiler and its grammars.
  explicit GrammarCompiler(const TextModel* model) : GrammarCompiler(model, Options()) {}
  GrammarCompiler(const TextModel* model, const Options& options)
      : model_(model), options_(options) {}

  // Errors are those of Grammar::Compile; they are not kept. Two threads that need the same new
  // grammar at once both compile it.
  absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const GrammarSource& source);

  Counters counters() const;

 private:
  struct Entry {
    std::string key;
    size_t source_bytes;
    std::shared_ptr<const Grammar> grammar;
  };

  void Keep(Entry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TextModel* const model_;
  const Options options_;

  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // last used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  size_t source_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::text
