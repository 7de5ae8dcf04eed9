// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/request_flags.h"

#include <limits>

namespace continuo::cli {

void AddRequestFlags(common::Flags& flags, RequestFlags* r) {
  constexpr uint32_t kMaxTokens = uint32_t{1} << 30;
  flags.Text("model", &r->model, "Name of the model. It may be left out where one is served.");
  flags.Integer("max_tokens", &r->max_tokens, 0u, kMaxTokens,
                "Maximum number of tokens of an answer.");
  flags.Integer("min_tokens", &r->min_tokens, 0u, kMaxTokens,
                "Minimum number of tokens of an answer.");
  flags.Number("temperature", &r->temperature, 0, 100,
               "Temperature of the sampling. 0 takes the most likely token.");
  flags.Integer("top_k", &r->top_k, 0u, kMaxTokens,
                "Sample from the k most likely tokens. 0 samples from all.");
  flags.Number("top_p", &r->top_p, 0, 1,
               "Sample from the most likely tokens that together have this probability.");
  flags.Number("min_p", &r->min_p, 0, 1,
               "Minimum probability of a token, relative to the most likely one.");
  flags.Integer("seed", &r->seed, uint64_t{0}, std::numeric_limits<uint64_t>::max(),
                "Seed of the sampling. The same seed gives the same answer.");
  flags.Number("repetition_penalty", &r->repetition_penalty, 0, 2,
               "Penalty on repetitions. Above 1 they become less likely.");
  flags.Number("presence_penalty", &r->presence_penalty, -2, 2,
               "Penalty that is subtracted once from a token in the answer.");
  flags.Number("frequency_penalty", &r->frequency_penalty, -2, 2,
               "Penalty that is subtracted each time a token is in the answer.");
  flags.Repeated("stop", &r->stop, "Text that ends the answer. The flag may be repeated.");
  flags.Switch("include_stop", &r->include_stop, "Show the stop text.");
  flags.Switch("ignore_eos", &r->ignore_eos, "Go on after the end of sequence.");
  flags.Integer("priority", &r->priority, -100, 100,
                "Priority of the request. Higher ones run first.");
  flags.Duration("timeout", &r->timeout, absl::ZeroDuration(), absl::InfiniteDuration(),
                 "Time until the answer has to be complete.");
  flags.Duration("reconnect_for", &r->reconnect_for, absl::ZeroDuration(), absl::Hours(24),
                 "Time in which a lost connection is retried.");
  flags.Switch("exact_only", &r->exact_only,
               "Fail rather than continue where the tokens could differ.");
}

v1::GenerateRequest MakeRequest(const RequestFlags& f) {
  v1::GenerateRequest r;
  r.set_model(f.model);
  r.set_request_id(f.request_id);
  r.set_exact_only(f.exact_only);
  if (f.priority) r.set_priority(*f.priority);
  v1::Sampling& s = *r.mutable_sampling();
  if (f.temperature) s.set_temperature(*f.temperature);
  if (f.top_k) s.set_top_k(*f.top_k);
  if (f.top_p) s.set_top_p(*f.top_p);
  if (f.min_p) s.set_min_p(*f.min_p);
  if (f.seed) s.set_seed(*f.seed);
  if (f.num_sequences) s.set_num_sequences(*f.num_sequences);
  if (f.repetition_penalty) s.set_repetition_penalty(*f.repetition_penalty);
  if (f.presence_penalty) s.set_presence_penalty(*f.presence_penalty);
  if (f.frequency_penalty) s.set_frequency_penalty(*f.frequency_penalty);
  v1::Stopping& stop = *r.mutable_stopping();
  if (f.max_tokens) stop.set_max_tokens(*f.max_tokens);
  if (f.min_tokens) stop.set_min_tokens(*f.min_tokens);
  for (const std::string& text : f.stop) stop.add_strings(text);
  stop.set_include_stop(f.include_stop);
  stop.set_ignore_eos(f.ignore_eos);
  return r;
}

}  // namespace continuo::cli
