// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/constrain.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/worker/text/calls/call_grammar.h"
#include "services/worker/text/response/response_parser.h"
#include "services/worker/text/response/spaces.h"

namespace continuo::server {
namespace {

using Kind = text::GrammarSource::Kind;

constexpr std::string_view kTools = "conversation.tools";

text::GrammarSource SourceOf(const v1::Constraint& constraint, std::string_view* field) {
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      *field = "constraint.json_schema";
      return {.kind = Kind::kJsonSchema, .text = constraint.json_schema()};
    case v1::Constraint::kRegex:
      *field = "constraint.regex";
      return {.kind = Kind::kRegex, .text = constraint.regex()};
    case v1::Constraint::kChoice:
      *field = "constraint.choice.options";
      return {
          .kind = Kind::kChoice,
          .options = {constraint.choice().options().begin(), constraint.choice().options().end()}};
    case v1::Constraint::kLark:
      *field = "constraint.lark";
      return {.kind = Kind::kLark, .text = constraint.lark()};
    case v1::Constraint::kJsonObject:
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  *field = "constraint.json_object";
  return {.kind = Kind::kJsonObject};
}

// Returns whether the prompt ends with a thought's end, as where thinking is switched off.
bool EndsThought(std::string_view prompt_end, const ThoughtMarks& marks) {
  using State = text::Pattern::Match::State;
  const std::string_view end = text::StripRight(prompt_end);
  for (size_t at = 0; at < end.size(); ++at) {
    if (!marks.close().MayBeginWith(end[at])) continue;
    const text::Pattern::Match match = marks.close().MatchAt(end.substr(at), false, true);
    if (match.state == State::kMatch && match.length == end.size() - at) return true;
  }
  return false;
}

// Returns whether the model's calls are constrained, and not only read.
bool ConstrainsCalls(const v1::GenerateRequest& request) {
  const v1::Conversation& conversation = request.conversation();
  const v1::ToolChoice::Mode mode = conversation.tool_choice().mode();
  if (conversation.tools().empty() || mode == v1::ToolChoice::MODE_NONE) return false;
  return mode == v1::ToolChoice::MODE_REQUIRED || request.has_constraint() ||
         std::ranges::any_of(conversation.tools(), &v1::Tool::strict);
}

// Returns the source for answers that may have calls. Those without match `text`, unless it is
// null.
absl::StatusOr<text::GrammarSource> CallSource(const v1::Conversation& conversation,
                                               const text::GrammarSource* text,
                                               const ServedModel& model) {
  using Choice = text::CallGrammarOptions::Choice;
  std::vector<text::CallTool> tools;
  for (const v1::Tool& tool : conversation.tools()) {
    tools.push_back(
        {.name = tool.name(), .parameters = tool.parameters(), .strict = tool.strict()});
  }
  const v1::ToolChoice& choice = conversation.tool_choice();
  text::CallGrammarOptions options = {
      .choice = Choice::kAuto, .name = choice.name(), .parallel = !choice.single_call()};
  if (choice.mode() == v1::ToolChoice::MODE_REQUIRED) {
    options.choice = choice.name().empty() ? Choice::kRequired : Choice::kNamed;
  } else if (text != nullptr) {
    options.text = *text;
  }
  absl::StatusOr<std::string> lark =
      text::CallGrammar(model.text->response_format(), tools, model.special_tokens, options);
  if (lark.ok() && options.text.has_value() && options.text->kind == Kind::kLark) {
    options.text->around = *std::move(lark);
    return *std::move(options.text);
  }
  if (lark.ok()) {
    return text::GrammarSource{.kind = Kind::kLark, .text = *std::move(lark), .is_own_lark = true};
  }
  return protocol::FieldError(kTools, std::string(lark.status().message()));
}

// Refuses a grammar that no answer can begin, and computes its first mask before the engine asks.
absl::Status CheckBeginning(const text::Grammar& grammar, std::string_view field,
                            const ServedModel& model) {
  ASSIGN_OR_RETURN(const std::unique_ptr<text::GrammarMatcher> matcher, grammar.NewMatcher());
  if (matcher->MustEnd()) return protocol::FieldError(field, "allows the empty answer alone");
  std::vector<uint32_t> mask(static_cast<size_t>(model.vocab_size + 31) / 32, ~uint32_t{0});
  matcher->FillMask(mask);
  const absl::Status status = matcher->status();
  if (!status.ok()) return protocol::FieldError(field, std::string(status.message()));
  return absl::OkStatus();
}

absl::StatusOr<AnswerGrammar> Compile(const text::GrammarSource& source, std::string_view field,
                                      const ServedModel& model) {
  absl::StatusOr<std::shared_ptr<const text::Grammar>> grammar = model.grammars->Compile(source);
  if (!grammar.ok()) {
    if (!absl::IsInvalidArgument(grammar.status())) return grammar.status();
    return protocol::FieldError(field, std::string(grammar.status().message()));
  }
  RETURN_IF_ERROR(CheckBeginning(**grammar, field, model));
  return AnswerGrammar{*std::move(grammar), std::string(field)};
}

// Returns the longest token that the text begins with, which is not special; -1 without one.
int32_t LongestToken(std::string_view text, const ServedModel& model) {
  int32_t longest = -1;
  size_t size = 0;
  for (int32_t id = 0; id < model.text->vocab_size(); ++id) {
    const std::string_view bytes = model.text->TokenBytes(id);
    if (bytes.size() <= size || model.text->IsSpecial(id) || !text.starts_with(bytes)) continue;
    longest = id;
    size = bytes.size();
  }
  return longest;
}

// Refuses a grammar whose text may begin like a call: such an answer would be both, and what the
// call's tool demands of its arguments would not hold.
absl::Status CheckIsNoCall(const text::Grammar& grammar, std::string_view field,
                           const ServedModel& model) {
  const std::string head = text::CallHead(model.text->response_format(), model.special_tokens);
  ASSIGN_OR_RETURN(const std::unique_ptr<text::GrammarMatcher> matcher, grammar.NewMatcher());
  for (std::string_view rest = head; !rest.empty();) {
    const int32_t id = LongestToken(rest, model);
    if (id < 0 || !matcher->Accept(id)) return absl::OkStatus();
    rest.remove_prefix(model.text->TokenBytes(id).size());
  }
  if (head.empty()) return absl::OkStatus();
  return protocol::FieldError(
      field, absl::StrCat("beside tools it must not allow text that begins as calls do, with \"",
                          absl::CHexEscape(head), "\""));
}

}  // namespace

bool NeedsGrammar(const v1::GenerateRequest& request) {
  return request.has_constraint() || ConstrainsCalls(request);
}

absl::StatusOr<AnswerGrammar> CompileConstraint(const v1::GenerateRequest& request,
                                                const ServedModel& model) {
  AnswerGrammar grammar;
  std::string_view field;
  text::GrammarSource source;
  if (request.has_constraint()) {
    // Compiled alone even where the grammar of calls includes it: an error must name its own field,
    // and that of calls would name the tools.
    source = SourceOf(request.constraint(), &field);
    ASSIGN_OR_RETURN(grammar, Compile(source, field, model));
  }
  if (!ConstrainsCalls(request)) {
    if (!request.has_constraint() || !HasTextHeader(request, model)) return grammar;
    source.around = text::TextFrame(model.text->response_format(), model.special_tokens);
    return source.around.empty() ? grammar : Compile(source, field, model);
  }
  const bool may_be_text =
      request.conversation().tool_choice().mode() != v1::ToolChoice::MODE_REQUIRED;
  if (request.constraint().has_lark() && may_be_text) {
    RETURN_IF_ERROR(CheckIsNoCall(*grammar.grammar, field, model));
  }
  ASSIGN_OR_RETURN(source, CallSource(request.conversation(),
                                      request.has_constraint() ? &source : nullptr, model));
  return Compile(source, kTools, model);
}

bool HasTextHeader(const v1::GenerateRequest& request, const ServedModel& model) {
  return request.has_conversation() && !request.conversation().continue_final_message() &&
         model.text->response_format().response_template.has_text_header;
}

Thoughts ThoughtsOf(const v1::GenerateRequest& request, std::string_view prompt_end,
                    const ServedModel& model) {
  if (!request.has_conversation() || model.thought_marks == nullptr ||
      request.conversation().continue_final_message()) {
    return Thoughts::kNone;
  }
  text::ResponseParser parser(&model.text->response_format().response_template, {});
  text::ResponseEvents events;
  parser.Begin(prompt_end, &events);
  if (parser.in_reasoning()) return Thoughts::kOpen;
  return EndsThought(prompt_end, *model.thought_marks) ? Thoughts::kNone : Thoughts::kPossible;
}

absl::StatusOr<std::vector<std::shared_ptr<AnswerConstraint>>> MakeConstraints(
    const AnswerGrammar& grammar, Thoughts thoughts, int num_sequences, const ServedModel& model) {
  std::vector<std::shared_ptr<AnswerConstraint>> constraints;
  if (grammar.grammar == nullptr) return constraints;
  for (int i = 0; i < num_sequences; ++i) {
    ASSIGN_OR_RETURN(
        constraints.emplace_back(),
        AnswerConstraint::Create(grammar.grammar, model.thought_marks, thoughts, grammar.field));
  }
  return constraints;
}

}  // namespace continuo::server
