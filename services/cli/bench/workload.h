// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a bench sends and when: lengths, arrivals and prompt ids, all drawn from one seed. No
// clock, no network.

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace continuo::cli {

// Of lengths in tokens: "128", "uniform:1:512" (both ends included) or "exponential:128" (the
// mean; rounded up, cut at ten times the mean).
class LengthDistribution {
 public:
  static absl::StatusOr<LengthDistribution> Parse(std::string_view text);
  uint32_t Draw(std::mt19937_64& random) const;

 private:
  enum class Kind { kConstant, kUniform, kExponential };
  Kind kind_ = Kind::kConstant;
  uint32_t first_ = 1;   // the constant, the least or the mean
  uint32_t second_ = 1;  // the most
};

struct TraceRow {
  std::optional<absl::Duration> arrival;  // Since the first row.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // Names of the prompt's blocks of kTraceBlockTokens: equal names are equal tokens.
  std::vector<uint64_t> block_names;
};
inline constexpr uint32_t kTraceBlockTokens = 512;

// CSV with a line of titles, or JSON lines. Known titles: prompt_tokens, input_tokens,
// input_length, ContextTokens or num_prefill_tokens; output_tokens, output_length,
// GeneratedTokens or num_decode_tokens; arrival_s in seconds or timestamp in milliseconds;
// hash_ids (JSON) for block names. INVALID_ARGUMENT names file, line and what is wrong with it.
absl::StatusOr<std::vector<TraceRow>> LoadTrace(const std::string& path);
absl::StatusOr<std::vector<TraceRow>> ParseTrace(std::string_view text);

struct WorkloadOptions {
  uint64_t seed = 0;
  LengthDistribution prompt, output;
  // Used in order, over and over, instead of the distributions.
  std::vector<TraceRow> trace;
  // Requests a second, at random times (Poisson); 0 takes the trace's arrivals, or none.
  double rate = 0;
  // Divides the trace's arrivals.
  double trace_speed = 1;
  // The first tokens of every prompt are those of one of num_prefixes prefixes.
  uint32_t shared_prefix_tokens = 0;
  uint32_t num_prefixes = 1;
  uint32_t vocabulary_size = 1;
  uint32_t max_context_tokens = 0;  // 0 is no bound.
};

struct PlannedRequest {
  uint64_t index = 0;
  absl::Duration arrival;  // Since the beginning.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  bool cut = false;  // Made shorter to fit into the context.
};

// Next is for one thread; PromptIds is thread-safe.
class Workload {
 public:
  explicit Workload(WorkloadOptions options);

  PlannedRequest Next();
  // The same for the same request, whatever else is drawn.
  std::vector<uint32_t> PromptIds(const PlannedRequest& request) const;

 private:
  const WorkloadOptions options_;
  std::mt19937_64 random_;
  uint64_t next_index_ = 0;
  absl::Duration now_;
};

}  // namespace continuo::cli
