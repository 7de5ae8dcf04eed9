// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/answer.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "absl/time/clock.h"
#include "services/cli/client/answer_printer.h"
#include "services/cli/client/generation.h"

namespace continuo::cli {
namespace {

constexpr int kInterrupted = 130;

std::string Json(const v1::GenerateResponse& response) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // This fails only for messages with unknown Any types, of which there are none.
  (void)google::protobuf::util::MessageToJsonString(response, &json, options);
  return json + "\n";
}

// Runs one request to its end. `text` is set to the answer of the first sequence, also after an
// error.
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
  AnswerPrinter printer(console, std::max(1u, request.sampling().num_sequences()));
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
                   "Text to continue. Without it, or with -, the standard input is read.");
  AddConnectionFlags(flags, &values->connection);
  AddRequestFlags(flags, &values->request);
  flags.Integer("n", &values->request.num_sequences, 1u, 128u, "Number of answers.");
  flags.Text("request_id", &values->request.request_id, "Name of the request in logs.");
  flags.Switch("json", &values->json, "Print every response as one line of JSON.");
  flags.Switch("verbose", &values->verbose, "Print usage, speed and reconnects to stderr.");
  flags.Footer(
      "Prints the text as it arrives. After a lost connection it continues where it was. Ctrl-C "
      "cancels the request. Exit code: 0, 1 after an error, 2 for bad usage, 130 when "
      "interrupted.");
}

void AddChatFlags(common::Flags& flags, AnswerFlags* values) {
  AddConnectionFlags(flags, &values->connection);
  AddRequestFlags(flags, &values->request);
  flags.Text("system", &values->system, "System message at the beginning of the conversation.");
  flags.Switch("verbose", &values->verbose, "Print usage, speed and reconnects to stderr.");
  flags.Footer(
      "Every line is a message. A backslash at its end continues it in the next line. /reset "
      "starts "
      "a new conversation, /system TEXT also changes the system message, and /exit ends. Ctrl-C "
      "ends an answer, and between answers the program.");
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

// Reads the next message: lines that end in a backslash are joined with the next one. Returns false
// at the end of the input.
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
    // A partial answer stays in the conversation; a message without an answer is dropped.
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
