// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/step_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace continuo::cli {
namespace {

constexpr int kSteps = 1, kBatch = 2;          // The ids of the processes.
constexpr uint64_t kReservedBytes = 2048;      // Room for the text of End().
constexpr int64_t kLatest = int64_t{1} << 62;  // In ns; far from an overflow.

// Quotes text for JSON. It becomes plain ASCII, so only quotes and backslashes need an escape.
std::string Quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : PlainText(text, 256)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// Formats microseconds with all digits: slices that touch must not overlap by rounding.
std::string Micros(int64_t nanoseconds) {
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

std::string Slice(std::string_view name, int process, size_t thread, int64_t begin, int64_t end,
                  std::string_view arguments) {
  return absl::StrFormat(R"({"ph":"X","name":%s,"pid":%d,"tid":%u,"ts":%s,"dur":%s,"args":{%s}})",
                         Quoted(name), process, thread, Micros(begin), Micros(end - begin),
                         arguments);
}

}  // namespace

StepTrace::StepTrace(uint64_t max_bytes) : max_bytes_(std::max(max_bytes, kMinBytes)) {
  text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
  num_bytes_ = text_.size();
  AddMetadata("process_name", kSteps, 0, "steps");
  AddMetadata("process_name", kBatch, 0, "batch");
}

bool StepTrace::Add(std::string_view event) {
  if (!full_ && num_bytes_ + event.size() + 2 + kReservedBytes > max_bytes_) full_ = true;
  if (full_) return false;
  const size_t before = text_.size();
  text_ += first_ ? "\n" : ",\n";
  text_ += event;
  first_ = false;
  num_bytes_ += text_.size() - before;
  return true;
}

void StepTrace::AddMetadata(std::string_view name, int process, size_t thread,
                            std::string_view value) {
  Add(absl::StrFormat(R"({"ph":"M","name":"%s","pid":%d,"tid":%u,"args":{"name":%s}})", name,
                      process, thread, Quoted(value)));
}

void StepTrace::AddInstant(std::string_view name, int64_t at) {
  Add(absl::StrFormat(R"({"ph":"i","s":"g","name":%s,"pid":%d,"tid":1,"ts":%s})", Quoted(name),
                      kSteps, Micros(at)));
}

// Adds the counters that have changed.
void StepTrace::AddCounters(const v1::Step& step, uint64_t prefill, uint64_t decode,
                            int64_t begin) {
  const auto add = [&](const std::string& name, const std::string& values) {
    if (counters_[name] == values) return;
    counters_[name] = values;
    Add(absl::StrFormat(R"({"ph":"C","name":"%s","pid":%d,"ts":%s,"args":{%s}})", name, kSteps,
                        Micros(begin), values));
  };
  add("sequences", absl::StrFormat(R"("in the step":%d,"waiting":%d)", step.sequences_size(),
                                   step.waiting_requests()));
  add("tokens", absl::StrFormat(R"("prefill":%d,"decode":%d)", prefill, decode));
  add("KV blocks", absl::StrFormat(R"("used":%d)", step.used_kv_blocks()));
}

void StepTrace::Take(const v1::WatchStepsResponse& response) {
  if (response.num_dropped() > 0) {
    num_dropped_ += response.num_dropped();
    AddInstant(absl::StrCat(response.num_dropped(), " steps not seen"), last_end_);
  }
  for (const v1::Step& step : response.steps()) {
    if (!full_) TakeStep(step);
  }
}

void StepTrace::TakeStep(const v1::Step& step) {
  const absl::Time start = TimeOf(step.start_time());
  if (origin_ == absl::InfinitePast()) origin_ = start;
  // Slices of a thread must not overlap, even if the worker's clock jumps.
  if (last_end_ > kLatest) full_ = true;
  const absl::Duration idle = start - origin_ - absl::Nanoseconds(last_end_);
  const int64_t begin =
      last_end_ + absl::ToInt64Nanoseconds(std::clamp(idle, absl::ZeroDuration(), absl::Hours(24)));
  const int64_t end = begin + absl::ToInt64Nanoseconds(DurationOf(step.duration()));
  uint64_t prefill = 0, decode = 0;
  for (const v1::StepSequence& s : step.sequences()) {
    (s.cached_tokens() < s.prompt_tokens() ? prefill : decode) += s.new_tokens();
  }
  const bool fits = Add(
      Slice("step", kSteps, 1, begin, end,
            absl::StrFormat(R"("number":%d,"sequences":%d,"prefill tokens":%d,"decode tokens":%d,)"
                            R"("waiting":%d,"KV blocks":%d)",
                            step.number(), step.sequences_size(), prefill, decode,
                            step.waiting_requests(), step.used_kv_blocks())));
  if (!fits) return;
  AddCounters(step, prefill, decode, begin);
  ++num_steps_;
  last_end_ = end;

  const std::vector<size_t> rows = batch_.Take(step);
  for (size_t row = generations_.size(); row < batch_.rows().size(); ++row) {
    AddMetadata("thread_name", kBatch, row + 1, absl::StrCat("row ", row + 1));
  }
  generations_.resize(batch_.rows().size());
  for (size_t row = 0; row < generations_.size(); ++row) {
    const BatchRow& now = batch_.rows()[row];
    const bool other = now.name != generations_[row].name;
    if (generations_[row].open && (other || now.state == BatchRow::State::kGone)) {
      Close(row, "gone");
    }
  }
  for (int i = 0; i < step.sequences_size(); ++i) {
    const size_t row = rows[static_cast<size_t>(i)];
    if (row != BatchRows::kNoRow) TakeSequence(step.sequences(i), row, begin, end);
  }
}

void StepTrace::TakeSequence(const v1::StepSequence& s, size_t row, int64_t begin, int64_t end) {
  const BatchRow& now = batch_.rows()[row];
  Generation& g = generations_[row];
  if (s.preempted()) {
    Close(row, "preempted");
    return;
  }
  if (s.cached_tokens() < s.prompt_tokens()) {
    Close(row, "prefilled again");
    Add(Slice(now.name + " prompt", kBatch, row + 1, begin, end,
              absl::StrFormat(R"("prompt":%d,"cached":%d,"prefilled":%d)", s.prompt_tokens(),
                              s.cached_tokens(), s.new_tokens())));
    if (now.state == BatchRow::State::kPrefill) return;
    // The token that is sampled after the last token of the prompt belongs to the generation.
    g = {true, now.name, end, end, 0, s.generated_tokens(), 0};
  } else {
    if (!g.open) g = {true, now.name, begin, end, std::max(1u, s.generated_tokens()) - 1, 0, 0};
    g.end = end;
    g.generated = s.generated_tokens();
    ++g.num_steps;
  }
  if (now.state == BatchRow::State::kEnded) Close(row, FinishName(now.finish));
}

void StepTrace::Close(size_t row, std::string_view why) {
  Generation& g = generations_[row];
  if (!g.open) return;
  g.open = false;
  num_requests_ += Add(Slice(g.name, kBatch, row + 1, g.begin, g.end,
                             absl::StrFormat(R"("generated":%d,"before":%d,"steps":%d,"end":%s)",
                                             g.generated, g.before, g.num_steps, Quoted(why))));
}

void StepTrace::Lose(std::string_view why) {
  for (size_t row = 0; row < generations_.size(); ++row) Close(row, "the worker is gone");
  batch_.Clear();
  counters_.clear();
  AddInstant("the worker is gone: " + std::string(why), last_end_);
}

void StepTrace::End(std::string_view worker, std::string_view reason) {
  for (size_t row = 0; row < generations_.size(); ++row) Close(row, "the trace ends");
  const size_t before = text_.size();
  absl::StrAppend(
      &text_, absl::StrFormat("\n],\"otherData\":{\"worker\":%s,\"ended\":%s,\"began\":%s,"
                              "\"steps\":%d,\"steps not seen\":%d}}\n",
                              Quoted(worker), Quoted(reason),
                              Quoted(num_steps_ == 0 ? "" : absl::FormatTime(origin_)), num_steps_,
                              num_dropped_));
  num_bytes_ += text_.size() - before;
  full_ = true;
}

std::string StepTrace::TakeText() {
  std::string text;
  text.swap(text_);
  return text;
}

}  // namespace continuo::cli
