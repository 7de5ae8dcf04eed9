// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/answer.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "absl/time/clock.h"
#include "services/cli/client/generation.h"

namespace continuo::cli {
namespace {

std::string Json(const v1::GenerateResponse& response) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // This fails only for messages with unknown Any types, of which there are none.
  (void)google::protobuf::util::MessageToJsonString(response, &json, options);
  return json + "\n";
}

}  // namespace

absl::Status PrintAnswer(const AnswerFlags& flags, v1::InferenceService::StubInterface* stub,
                         v1::GenerateRequest request, Interrupt& interrupt, const Console& console,
                         Answer* answer) {
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
  *answer = printer.answer();
  return status;
}

int Fail(const Console& console, const char* command, const absl::Status& status) {
  console.err << command << ": " << DescribeError(status) << std::endl;
  return 1;
}

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
  Answer answer;
  const absl::Status status =
      PrintAnswer(flags, stub.get(), std::move(request), interrupt, console, &answer);
  if (absl::IsCancelled(status) && interrupt.num_signals() > 0) return kInterrupted;
  return status.ok() ? 0 : Fail(console, kCommand, status);
}

}  // namespace continuo::cli
