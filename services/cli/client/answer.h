// SPDX-License-Identifier: Apache-2.0
#pragma once

// `continuo generate` and `continuo chat`: one answer, or a conversation, on the terminal.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

// What a request may ask for; what is unset is left to the model's defaults.
struct RequestFlags {
  std::string model, request_id;
  std::optional<uint32_t> max_tokens, min_tokens, top_k, num_sequences;
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<int32_t> priority;
  std::vector<std::string> stop;
  bool include_stop = false, ignore_eos = false, exact_only = false;
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration reconnect_for = absl::Seconds(60);
  absl::Duration first_backoff = absl::Milliseconds(100);  // Not a flag.
};

struct AnswerFlags {
  Connection connection;
  RequestFlags request;
  bool verbose = false;
  bool json = false;         // generate
  std::string prompt = "-";  // generate; "-" is all of the input
  std::string system;        // chat
};

void AddGenerateFlags(common::Flags& flags, AnswerFlags* values);
void AddChatFlags(common::Flags& flags, AnswerFlags* values);

// Where a command reads and writes.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool interactive = false;   // A person types `in` and sees `out`.
  bool out_terminal = false;  // A person sees `out`.
  bool err_terminal = false;
};

// Each returns the exit code: 0, 1 after an error (one line on `err`), 130 where it was
// interrupted. An interrupt ends the answer of a chat; between answers it ends the program.
int RunGenerate(const AnswerFlags& flags, Interrupt& interrupt, const Console& console);
int RunChat(const AnswerFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
