// SPDX-License-Identifier: Apache-2.0
#pragma once

// The requests of a bench: lengths, arrivals and prompt ids, all from one seed. Uses no clock and
// no network.

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace continuo::cli {

// A distribution of lengths in tokens: "128", "uniform:1:512" (both ends included) or
// "exponential:128" (the mean; lengths are rounded up and cut at ten times the mean).
class LengthDistribution {
 public:
  // INVALID_ARGUMENT says what is allowed.
  static absl::StatusOr<LengthDistribution> Parse(std::string_view text);
  uint32_t Sample(std::mt19937_64& random) const;

 private:
  enum class Kind { kConstant, kUniform, kExponential };
  Kind kind_ = Kind::kConstant;
  uint32_t first_ = 1;   // The constant, the minimum or the mean.
  uint32_t second_ = 1;  // The maximum.
};

// One request of a trace.
struct TraceRow {
  std::optional<absl::Duration> arrival;  // Since the first row.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // The names of the prompt's blocks of kTraceBlockTokens tokens. Equal names mean equal tokens.
  std::vector<uint64_t> block_names;
};
inline constexpr uint32_t kTraceBlockTokens = 512;

// Reads a trace: CSV with a line of titles, or JSON lines. The known titles are prompt_tokens,
// input_tokens, input_length, ContextTokens or num_prefill_tokens; output_tokens, output_length,
// GeneratedTokens or num_decode_tokens; arrival_s in seconds, timestamp in milliseconds or
// TIMESTAMP as a date (CSV); hash_ids (JSON) for block names. INVALID_ARGUMENT names the file, the
// line and the error.
//
// A recording that is named has to have that one's form: Azure's three columns, Mooncake's three
// members.
enum class TraceForm { kAny, kAzure, kMooncake };
absl::StatusOr<std::vector<TraceRow>> LoadTrace(const std::string& path,
                                                TraceForm form = TraceForm::kAny);
absl::StatusOr<std::vector<TraceRow>> ParseTrace(std::string_view text,
                                                 TraceForm form = TraceForm::kAny);

// The parameters of a workload.
struct WorkloadOptions {
  uint64_t seed = 0;
  LengthDistribution prompt, output;
  // Replaces the distributions; its rows are used in order, again from the first after the last.
  std::vector<TraceRow> trace;
  // Requests per second, at random times (Poisson). 0 takes the trace's arrivals, if any.
  double rate = 0;
  // The coefficient of variation of the gaps between these times, from 1 to 20. 1 is Poisson.
  double burstiness = 1;
  // Divides the trace's arrivals.
  double trace_speed = 1;
  // Every prompt begins with one of num_prefixes prefixes of this length.
  uint32_t shared_prefix_tokens = 0;
  uint32_t num_prefixes = 1;
  uint32_t vocabulary_size = 1;
  uint32_t max_context_tokens = 0;  // 0 is no limit.
};

// One request of the workload.
struct PlannedRequest {
  uint64_t index = 0;
  absl::Duration arrival;  // Since the start of the bench.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  bool cut = false;  // Shortened to fit into the context.
};

// The sequence of requests. Next is called by one thread; PromptIds is thread-safe.
class Workload {
 public:
  explicit Workload(WorkloadOptions options);

  PlannedRequest Next();
  // The prompt of a request. It depends only on the request and the options.
  std::vector<uint32_t> PromptIds(const PlannedRequest& request) const;

 private:
  const WorkloadOptions options_;
  std::mt19937_64 random_;
  uint64_t next_index_ = 0;
  absl::Duration now_;
};

}  // namespace continuo::cli
