// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/answer.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/cli/client/generation.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {
namespace {

constexpr int kInterrupted = 130;

void AddRequestFlags(common::Flags& flags, RequestFlags* r) {
  constexpr uint32_t kMaxTokens = uint32_t{1} << 30;
  flags.Text("model", &r->model, "name of the model, where several are served");
  flags.Integer("max_tokens", &r->max_tokens, 0u, kMaxTokens, "most tokens of an answer");
  flags.Integer("min_tokens", &r->min_tokens, 0u, kMaxTokens, "tokens before which no answer ends");
  flags.Number("temperature", &r->temperature, 0, 100, "0 takes the most likely token");
  flags.Integer("top_k", &r->top_k, 0u, kMaxTokens, "of the k most likely tokens; 0 is all");
  flags.Number("top_p", &r->top_p, 0, 1,
               "of the most likely tokens that together have this probability");
  flags.Number("min_p", &r->min_p, 0, 1, "least probability relative to the most likely token");
  flags.Integer("seed", &r->seed, uint64_t{0}, std::numeric_limits<uint64_t>::max(),
                "the same seed gives the same answer");
  flags.Number("repetition_penalty", &r->repetition_penalty, 0, 2,
               "above 1 makes repetitions less likely");
  flags.Number("presence_penalty", &r->presence_penalty, -2, 2,
               "subtracted once for a token in the answer");
  flags.Number("frequency_penalty", &r->frequency_penalty, -2, 2,
               "subtracted for each time a token is in the answer");
  flags.Repeated("stop", &r->stop, "text that ends the answer");
  flags.Switch("include_stop", &r->include_stop, "show the stop text");
  flags.Switch("ignore_eos", &r->ignore_eos, "go on after the end of sequence");
  flags.Integer("priority", &r->priority, -100, 100, "higher runs first");
  flags.Duration("timeout", &r->timeout, absl::ZeroDuration(), absl::InfiniteDuration(),
                 "until the answer has to be complete");
  flags.Duration("reconnect_for", &r->reconnect_for, absl::ZeroDuration(), absl::Hours(24),
                 "how long to try to go on after the connection is lost");
  flags.Switch("exact_only", &r->exact_only,
               "rather fail than go on where the tokens could differ");
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

// Shows the first sequence as it comes and the others, each under a line of its own, as soon as
// the one before is complete.
class Printer {
 public:
  Printer(const Console& console, uint32_t num_sequences)
      : console_(console), num_sequences_(num_sequences) {}

  void Take(const v1::GenerateResponse& response) {
    for (const v1::Delta& delta : response.deltas()) {
      Sequence& sequence = sequences_[delta.index()];
      sequence.pending += delta.text();
      sequence.text += delta.text();
      sequence.finished = sequence.finished || delta.finish_reason() != 0;
    }
    while (true) {
      Sequence& sequence = sequences_[current_];
      if (num_sequences_ > 1 && !sequence.titled) {
        console_.out << "--- " << current_ + 1 << " of " << num_sequences_ << "\n";
        sequence.titled = true;
      }
      console_.out << (console_.out_terminal ? ForTerminal(sequence.pending) : sequence.pending);
      sequence.pending.clear();
      if (!sequence.finished || current_ + 1 >= num_sequences_) break;
      EndLine(sequence);
      ++current_;
    }
    console_.out.flush();
  }
  // So that what follows begins in a line of its own.
  void End() { EndLine(sequences_[current_]); }
  // Of the first sequence.
  const std::string& text() { return sequences_[0].text; }

 private:
  struct Sequence {
    std::string text, pending;
    bool finished = false, titled = false;
  };
  void EndLine(const Sequence& sequence) {
    if (!sequence.text.empty() && sequence.text.back() != '\n') console_.out << "\n";
    console_.out.flush();
  }

  const Console& console_;
  const uint32_t num_sequences_;
  std::map<uint32_t, Sequence> sequences_;
  uint32_t current_ = 0;
};

std::string FinishName(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  return name.empty() ? "?" : name.substr(std::string_view("FINISH_REASON_").size());
}

// What --verbose tells after an answer.
class UsageLine {
 public:
  void Take(const v1::GenerateResponse& response) {
    if (first_ == absl::InfiniteFuture() && response.deltas_size() > 0) first_ = absl::Now();
    if (response.has_accepted()) accepted_ = response.accepted();
    for (const v1::Delta& delta : response.deltas()) {
      if (delta.finish_reason() != 0) finish_ = delta.finish_reason();
    }
    if (response.has_summary()) summary_ = response.summary();
  }
  std::string Text() const {
    const v1::Usage& usage = summary_.usage();
    const absl::Time end = absl::Now();
    std::string text =
        absl::StrCat("[", usage.prompt_tokens(), " prompt tokens (", usage.cached_prompt_tokens(),
                     " cached), ", usage.completion_tokens(), " generated");
    if (first_ != absl::InfiniteFuture()) {
      absl::StrAppend(&text, ", first after ",
                      FormatSeconds(absl::ToDoubleSeconds(first_ - begin_)), ", ",
                      FormatCount(usage.completion_tokens() / absl::ToDoubleSeconds(end - begin_)),
                      " tokens/s");
    }
    absl::StrAppend(&text, ", ", FinishName(finish_), ", seed ", accepted_.seed(), ", worker ",
                    accepted_.worker());
    if (summary_.migrations() > 0) absl::StrAppend(&text, ", moved ", summary_.migrations(), "×");
    if (summary_.inexact()) text += ", inexact";
    return text + "]";
  }

 private:
  const absl::Time begin_ = absl::Now();
  absl::Time first_ = absl::InfiniteFuture();
  v1::Accepted accepted_;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Summary summary_;
};

std::string Json(const v1::GenerateResponse& response) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails only for messages with unknown Any types, of which there are none.
  (void)google::protobuf::util::MessageToJsonString(response, &json, options);
  return json + "\n";
}

// Runs one request to its end. `text` gets the first sequence's answer, also after an error.
absl::Status Answer(const AnswerFlags& flags, v1::InferenceService::StubInterface* stub,
                    v1::GenerateRequest request, Interrupt& interrupt, const Console& console,
                    std::string* text) {
  GenerationOptions options;
  if (flags.request.timeout != absl::InfiniteDuration()) {
    options.deadline = absl::Now() + flags.request.timeout;
  }
  options.reconnect_for = flags.request.reconnect_for;
  options.first_backoff = flags.request.first_backoff;
  options.prepare = [&](grpc::ClientContext& context) { AddMetadata(flags.connection, context); };
  if (flags.verbose) {
    options.on_retry = [&](const absl::Status& status) {
      console.err << "[" << DescribeError(status) << "; going on]" << std::endl;
    };
  }
  Printer printer(console, std::max(1u, request.sampling().num_sequences()));
  UsageLine usage;
  Generation generation(stub, std::move(request), std::move(options));
  absl::Status status;
  {
    Interrupt::Scope scope(&interrupt, [&] { generation.Cancel(); });
    status = generation.Run([&](const v1::GenerateResponse& response) {
      usage.Take(response);
      if (flags.json) {
        console.out << Json(response) << std::flush;
      } else {
        printer.Take(response);
      }
    });
  }
  if (!flags.json) printer.End();
  if (flags.verbose && status.ok()) console.err << usage.Text() << std::endl;
  *text = printer.text();
  return status;
}

int Fail(const Console& console, const char* command, const absl::Status& status) {
  console.err << command << ": " << DescribeError(status) << std::endl;
  return 1;
}

}  // namespace

void AddGenerateFlags(common::Flags& flags, AnswerFlags* values) {
  flags.Positional("prompt", &values->prompt, /*required=*/false,
                   "text to continue; - or nothing reads the standard input");
  AddConnectionFlags(flags, &values->connection);
  AddRequestFlags(flags, &values->request);
  flags.Integer("n", &values->request.num_sequences, 1u, 128u, "how many answers");
  flags.Text("request_id", &values->request.request_id, "name of the request in logs");
  flags.Switch("json", &values->json, "print every response as one line of JSON");
  flags.Switch("verbose", &values->verbose, "tell usage, speed and reconnects on stderr");
  flags.Footer(
      "Streams the text as it comes. After a lost connection it goes on where it was. Ctrl-C "
      "cancels the request. Exit code: 0, 1 after an error, 2 for bad usage, 130 when "
      "interrupted.");
}

void AddChatFlags(common::Flags& flags, AnswerFlags* values) {
  AddConnectionFlags(flags, &values->connection);
  AddRequestFlags(flags, &values->request);
  flags.Text("system", &values->system, "system message at the beginning of the conversation");
  flags.Switch("verbose", &values->verbose, "tell usage, speed and reconnects on stderr");
  flags.Footer(
      "Every line is a message; a backslash at its end goes on in the next line. /reset begins "
      "anew, /system TEXT also changes the system message, /exit ends. Ctrl-C ends an answer, and "
      "between answers the program.");
}

int RunGenerate(const AnswerFlags& flags, Interrupt& interrupt, const Console& console) {
  const char* const kCommand = "continuo generate";
  v1::GenerateRequest request = MakeRequest(flags.request);
  if (flags.prompt == "-") {
    request.set_text(std::string(std::istreambuf_iterator<char>(console.in), {}));
  } else {
    request.set_text(flags.prompt);
  }
  const auto channel = OpenChannel(flags.connection);
  if (!channel.ok()) return Fail(console, kCommand, channel.status());
  const auto stub = v1::InferenceService::NewStub(*channel);
  std::string text;
  const absl::Status status =
      Answer(flags, stub.get(), std::move(request), interrupt, console, &text);
  if (absl::IsCancelled(status) && interrupt.num_signals() > 0) return kInterrupted;
  return status.ok() ? 0 : Fail(console, kCommand, status);
}

namespace {

// The next message: lines joined where they end in a backslash. False at the end of the input.
bool ReadMessage(const Console& console, std::string* message) {
  message->clear();
  std::string line;
  const char* prompt = "> ";
  while (true) {
    if (console.interactive) console.out << prompt << std::flush;
    if (!std::getline(console.in, line)) return !message->empty();
    if (line.empty() || line.back() != '\\') break;
    line.back() = '\n';
    *message += line;
    prompt = "… ";
  }
  *message += line;
  return true;
}

v1::Conversation NewConversation(const std::string& system) {
  v1::Conversation conversation;
  if (!system.empty()) {
    v1::ChatMessage& message = *conversation.add_messages();
    message.set_role("system");
    message.set_content(system);
  }
  return conversation;
}

void AddMessage(v1::Conversation& conversation, const char* role, const std::string& content) {
  v1::ChatMessage& message = *conversation.add_messages();
  message.set_role(role);
  message.set_content(content);
}

}  // namespace

int RunChat(const AnswerFlags& flags, Interrupt& interrupt, const Console& console) {
  const char* const kCommand = "continuo chat";
  const auto channel = OpenChannel(flags.connection);
  if (!channel.ok()) return Fail(console, kCommand, channel.status());
  const auto stub = v1::InferenceService::NewStub(*channel);
  std::string system = flags.system;
  v1::Conversation conversation = NewConversation(system);
  std::string message;
  while (ReadMessage(console, &message)) {
    if (message.empty()) continue;
    if (message == "/exit") break;
    if (message == "/reset" || message.rfind("/system ", 0) == 0) {
      if (message != "/reset") system = message.substr(8);
      conversation = NewConversation(system);
      continue;
    }
    if (message[0] == '/' && console.interactive) {
      console.err << "/reset begins anew, /system TEXT also changes the system message, /exit ends"
                  << std::endl;
      continue;
    }
    AddMessage(conversation, "user", message);
    v1::GenerateRequest request = MakeRequest(flags.request);
    *request.mutable_conversation() = conversation;
    std::string answer;
    const absl::Status status =
        Answer(flags, stub.get(), std::move(request), interrupt, console, &answer);
    // What was answered before an interrupt stays; a message without an answer is forgotten.
    if (status.ok() || !answer.empty()) {
      AddMessage(conversation, "assistant", answer);
    } else {
      conversation.mutable_messages()->RemoveLast();
    }
    if (status.ok()) continue;
    if (absl::IsCancelled(status) && console.interactive) continue;
    if (absl::IsCancelled(status) && interrupt.num_signals() > 0) return kInterrupted;
    const int code = Fail(console, kCommand, status);
    if (!console.interactive) return code;
  }
  if (console.interactive) console.out << std::endl;
  return 0;
}

}  // namespace continuo::cli
