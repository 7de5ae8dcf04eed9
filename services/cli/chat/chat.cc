// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/chat.h"

#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {
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

// Holds one conversation after another, with the same tools. Not thread-safe; what its constructor
// refers to outlives it.
class Chat {
 public:
  Chat(const ChatFlags& flags, ToolRunner tools, v1::InferenceService::StubInterface* stub,
       Interrupt& interrupt, const Console& console)
      : flags_(flags),
        tools_(std::move(tools)),
        stub_(stub),
        interrupt_(interrupt),
        console_(console) {}

  void Begin(const std::string& system) {
    conversation_.Clear();
    for (const LocalTool& tool : tools_.tools()) *conversation_.add_tools() = tool.definition;
    if (!system.empty()) Add("system", system);
  }

  // Answers a message, which takes several requests where tools are called. After an error the
  // message is dropped with all that followed, unless the last answer has some text: then that
  // stays, too.
  absl::Status Say(const std::string& message) {
    const int begin = conversation_.messages_size();
    Add("user", message);
    Answer answer;
    const absl::Status status = AnswerLast(&answer);
    if (!status.ok() && answer.text.empty()) {
      auto& messages = *conversation_.mutable_messages();
      messages.DeleteSubrange(begin, messages.size() - begin);
    } else {
      Add("assistant", answer.text);
    }
    return status;
  }

 private:
  v1::ChatMessage& Add(const char* role, const std::string& content) {
    v1::ChatMessage& message = *conversation_.add_messages();
    message.set_role(role);
    message.set_content(content);
    return message;
  }

  // Sends the conversation, until an answer calls no tool. Adds all messages but that answer.
  absl::Status AnswerLast(Answer* answer) {
    for (uint32_t round = 0;; ++round) {
      v1::GenerateRequest request = MakeRequest(flags_.answer.request);
      *request.mutable_conversation() = conversation_;
      RETURN_IF_ERROR(
          PrintAnswer(flags_.answer, stub_, std::move(request), interrupt_, console_, answer));
      if (answer->tool_calls.empty()) return absl::OkStatus();
      if (answer->finish_reason != v1::FINISH_REASON_TOOL_CALLS) {
        console_.err << "[the answer was cut off in a call, which does not run]" << std::endl;
        return absl::OkStatus();
      }
      if (round == flags_.tools.rounds) {
        answer->text.clear();
        return absl::ResourceExhaustedError(
            absl::StrCat("the model called tools again after ", round, " rounds (--tool_rounds)"));
      }
      RETURN_IF_ERROR(RunTools(std::exchange(*answer, {})));
    }
  }

  absl::Status RunTools(Answer answer) {
    v1::ChatMessage& message = Add("assistant", answer.text);
    message.set_reasoning(answer.reasoning);
    for (const v1::ToolCall& call : answer.tool_calls) {
      v1::ToolCall& told = *message.add_tool_calls();
      told = call;
      // Servers refuse a conversation with arguments that are no JSON object.
      if (!CheckArguments(call.arguments()).ok()) told.set_arguments("{}");
    }
    for (const v1::ToolCall& call : answer.tool_calls) {
      ASSIGN_OR_RETURN(const std::string result, tools_.Run(call, interrupt_, console_));
      v1::ChatMessage& said = Add("tool", result);
      said.set_tool_call_id(call.id());
      said.set_name(call.name());
    }
    return absl::OkStatus();
  }

  const ChatFlags& flags_;
  ToolRunner tools_;
  v1::InferenceService::StubInterface* const stub_;
  Interrupt& interrupt_;
  const Console& console_;
  v1::Conversation conversation_;
};

}  // namespace

void AddChatFlags(common::Flags& flags, ChatFlags* values) {
  AddConnectionFlags(flags, &values->answer.connection);
  AddRequestFlags(flags, &values->answer.request);
  flags.Text("system", &values->system, "System message at the beginning of the conversation.");
  AddToolFlags(flags, &values->tools);
  flags.Switch("verbose", &values->answer.verbose, "Print usage, speed and reconnects to stderr.");
  flags.Footer(
      "Every line is a message. A backslash at its end continues it in the next line. /reset "
      "starts a new conversation, /system TEXT also changes the system message, and /exit ends. "
      "Ctrl-C ends an answer, and between answers the program.");
}

int RunChat(const ChatFlags& flags, Interrupt& interrupt, const Console& console) {
  const char* const kCommand = "continuo chat";
  absl::StatusOr<ToolRunner> tools = ToolRunner::Open(flags.tools);
  if (!tools.ok()) return Fail(console, kCommand, tools.status());
  const auto channel = OpenChannel(flags.answer.connection);
  if (!channel.ok()) return Fail(console, kCommand, channel.status());
  const auto stub = v1::InferenceService::NewStub(*channel);
  Chat chat(flags, *std::move(tools), stub.get(), interrupt, console);
  std::string system = flags.system;
  chat.Begin(system);
  std::string message;
  while (ReadMessage(console, &message)) {
    if (message.empty()) continue;
    if (message == "/exit") break;
    if (message == "/reset" || message.rfind("/system ", 0) == 0) {
      if (message != "/reset") system = message.substr(8);
      chat.Begin(system);
      continue;
    }
    if (message[0] == '/' && console.interactive) {
      console.err << "/reset begins anew, /system TEXT also changes the system message, /exit ends"
                  << std::endl;
      continue;
    }
    const absl::Status status = chat.Say(message);
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
