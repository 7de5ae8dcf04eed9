// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/answer_printer.h"

#include <iostream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {
namespace {

std::string FinishName(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  return name.empty() ? "?" : name.substr(std::string_view("FINISH_REASON_").size());
}

}  // namespace

void AnswerPrinter::Take(const v1::GenerateResponse& response) {
  for (const v1::Delta& delta : response.deltas()) {
    Sequence& sequence = sequences_[delta.index()];
    // Thoughts are for a person to watch; what a program reads is the answer.
    if (console_.out_terminal && !delta.reasoning().empty()) {
      sequence.pending += delta.reasoning();
      sequence.thinks = true;
    }
    if (sequence.thinks && !delta.text().empty()) {
      sequence.pending += "\n\n";
      sequence.thinks = false;
    }
    sequence.pending += delta.text();
    sequence.answer.text += delta.text();
    sequence.answer.reasoning += delta.reasoning();
    if (!sequence.pending.empty()) sequence.last = sequence.pending.back();
    if (delta.finish_reason() != 0) {
      sequence.finished = true;
      sequence.answer.finish_reason = delta.finish_reason();
    }
  }
  if (!sequences_[current_].pending.empty()) CloseCall();
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
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.index() == 0) TakeCalls(sequences_[0], delta);
  }
}

void AnswerPrinter::TakeCalls(Sequence& sequence, const v1::Delta& delta) {
  std::vector<v1::ToolCall>& calls = sequence.answer.tool_calls;
  for (const v1::ToolCall& piece : delta.tool_calls()) {
    // The first piece of a call has its id; pieces come in the order of the calls.
    if (!piece.id().empty() || calls.empty()) {
      CloseCall();
      EndLine(sequence);
      console_.err << "[" << LineForTerminal(piece.name()) << " ";
      call_open_ = true;
      calls.emplace_back(piece).clear_arguments();
    }
    *calls.back().mutable_arguments() += piece.arguments();
    console_.err << LineForTerminal(piece.arguments()) << std::flush;
  }
}

void AnswerPrinter::CloseCall() {
  if (call_open_) console_.err << "]" << std::endl;
  call_open_ = false;
}

void AnswerPrinter::End() {
  CloseCall();
  EndLine(sequences_[current_]);
}

void AnswerPrinter::EndLine(Sequence& sequence) {
  if (sequence.last != '\n') console_.out << "\n";
  sequence.last = '\n';
  console_.out.flush();
}

void UsageLine::Take(const v1::GenerateResponse& response) {
  if (first_ == absl::InfiniteFuture() && response.deltas_size() > 0) first_ = absl::Now();
  if (response.has_accepted()) accepted_ = response.accepted();
  for (const v1::Delta& delta : response.deltas()) {
    if (delta.finish_reason() != 0) finish_ = delta.finish_reason();
  }
  if (response.has_summary()) summary_ = response.summary();
}

std::string UsageLine::Text() const {
  const v1::Usage& usage = summary_.usage();
  const absl::Time end = absl::Now();
  std::string text =
      absl::StrCat("[", usage.prompt_tokens(), " prompt tokens (", usage.cached_prompt_tokens(),
                   " cached), ", usage.completion_tokens(), " generated");
  if (first_ != absl::InfiniteFuture()) {
    absl::StrAppend(
        &text, ", first after ", FormatSeconds(absl::ToDoubleSeconds(first_ - begin_)), ", ",
        FormatCount(usage.completion_tokens() / absl::ToDoubleSeconds(end - begin_)), " tokens/s");
  }
  absl::StrAppend(&text, ", ", FinishName(finish_), ", seed ", accepted_.seed(), ", worker ",
                  accepted_.worker());
  if (summary_.migrations() > 0) absl::StrAppend(&text, ", migrated ", summary_.migrations(), "×");
  if (summary_.inexact()) text += ", inexact";
  return text + "]";
}

}  // namespace continuo::cli
