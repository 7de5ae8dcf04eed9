// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/call_grammar.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/worker/text/calls/argument_grammar.h"
#include "services/worker/text/calls/call_form.h"
#include "services/worker/text/calls/lark.h"
#include "services/worker/text/calls/plain_schema.h"
#include "services/worker/text/calls/tool_schema.h"
#include "services/worker/text/response/json_scanner.h"
#include "services/worker/text/response/response_parser.h"

namespace continuo::text {
namespace {

using Choice = CallGrammarOptions::Choice;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxTools = 1'024;
// The grammar that this one is compiled around.
constexpr std::string_view kInner = "@text";
// This may stand before the first marker; no parser tells it.
constexpr char kLead[] = "/\\n{1,2}/";

absl::Status AboutTool(std::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("the tool ", JsonString(name), ": ",
                                                  std::string(status.message())));
}

// A piece of a call: text and tokens, the arguments, or a number.
struct CallPiece {
  enum class Kind { kText, kToken, kArguments, kNumber };
  Kind kind = Kind::kText;
  std::string text;
  const SpecialToken* token = nullptr;
};

// Writes one grammar.
class Writer {
 public:
  Writer(const ResponseFormat& format, CallForm form, std::span<const SpecialToken> tokens,
         const CallGrammarOptions& options)
      : format_(format),
        form_(std::move(form)),
        tokens_(tokens),
        options_(options),
        only_one_(!options.parallel || options.choice == Choice::kNamed || form_.only_one) {}

  absl::StatusOr<std::string> Write(std::span<const CallTool> tools, const ParameterTypes& types);
  // The header of text, and @text behind it.
  std::string WriteTextFrame();
  std::string Head() const;

 private:
  using Pieces = std::vector<CallPiece>;

  std::string NameText(std::string_view name) const;
  Pieces Divide(std::string_view text) const;
  Pieces Opening() const;
  Pieces DivideCall(std::string_view form, std::string_view name) const;
  bool CutAtEnd(Pieces* pieces) const;
  std::string Body(std::span<const CallPiece> pieces, const std::string& arguments);
  absl::Status CheckName(std::string_view name);
  bool Reads(std::string_view text, std::string_view name, int num_calls) const;
  absl::Status WriteCalls(std::span<const CallTool> tools, const ParameterTypes& types);
  absl::StatusOr<std::string> WriteStart();
  absl::StatusOr<std::string> WriteDemand(const GrammarSource& demand);
  std::string Text(std::string_view text) { return Body(Divide(text), ""); }
  std::string NextPart();
  std::string NoCall(std::string_view any) const;
  std::string CallMarker() const;

  const ResponseFormat& format_;
  const CallForm form_;
  const std::span<const SpecialToken> tokens_;
  const CallGrammarOptions& options_;
  bool only_one_;
  Lark lark_;

  // The text that every answer with calls begins with, and the rules of what follows it: the first
  // call up to its end, a call that is not the first, and what ends the calls.
  std::string head_;
  std::string first_, next_, after_;
  // The same for a format whose calls are JSON that begins the answer: a call is one value.
  std::string call_value_;
};

// Returns the name as it stands in a call.
std::string Writer::NameText(std::string_view name) const {
  if (!form_.name_is_json) return std::string(name);
  const std::string json = JsonString(name);
  return json.substr(1, json.size() - 2);
}

Writer::Pieces Writer::Divide(std::string_view text) const {
  Pieces pieces;
  for (MarkedPiece& piece : DivideAtTokens(text, tokens_)) {
    pieces.push_back({piece.token == nullptr ? CallPiece::Kind::kText : CallPiece::Kind::kToken,
                      std::move(piece.text), piece.token});
  }
  return pieces;
}

// The pieces of a form with the name in its place.
Writer::Pieces Writer::DivideCall(std::string_view form, std::string_view name) const {
  Pieces pieces;
  const auto add = [&](Pieces more) {
    for (CallPiece& piece : more) {
      const bool joins = !pieces.empty() && piece.kind == CallPiece::Kind::kText &&
                         pieces.back().kind == CallPiece::Kind::kText;
      if (joins) {
        pieces.back().text += piece.text;
      } else {
        pieces.push_back(std::move(piece));
      }
    }
  };
  size_t begin = 0;
  for (size_t at = 0; at <= form.size(); ++at) {
    const char c = at < form.size() ? form[at] : '\0';
    const bool is_place = c == CallForm::kName || c == CallForm::kArguments ||
                          c == CallForm::kNumber || at == form.size();
    if (!is_place) continue;
    add(Divide(form.substr(begin, at - begin)));
    begin = at + 1;
    // A name is text, whatever tokens it is spelt like.
    if (c == CallForm::kName) add({{.text = NameText(name)}});
    if (c == CallForm::kArguments) pieces.push_back({.kind = CallPiece::Kind::kArguments});
    if (c == CallForm::kNumber) pieces.push_back({.kind = CallPiece::Kind::kNumber});
  }
  return pieces;
}

// Leaves out a token that ends the answer, and what follows it. Returns whether there was one.
bool Writer::CutAtEnd(Pieces* pieces) const {
  for (size_t i = 0; i < pieces->size(); ++i) {
    const CallPiece& piece = (*pieces)[i];
    if (piece.token == nullptr || !piece.token->ends_answer) continue;
    pieces->resize(i);
    return true;
  }
  return false;
}

std::string Writer::Body(std::span<const CallPiece> pieces, const std::string& arguments) {
  std::string body;
  const auto add = [&](std::string_view part) {
    if (!part.empty()) absl::StrAppend(&body, body.empty() ? "" : " ", std::string(part));
  };
  for (const CallPiece& piece : pieces) {
    switch (piece.kind) {
      case CallPiece::Kind::kText:
        add(Lark::Literal(piece.text));
        break;
      case CallPiece::Kind::kToken:
        add(Lark::Token(piece.token->id));
        break;
      case CallPiece::Kind::kArguments:
        add(arguments);
        break;
      case CallPiece::Kind::kNumber:
        add("/[0-9]{1,3}/");
        break;
    }
  }
  return body.empty() ? "\"\"" : body;
}

// Returns whether the format reads the text as this many calls of the name, without arguments.
bool Writer::Reads(std::string_view text, std::string_view name, int num_calls) const {
  ResponseParser parser(&format_.response_template, {.reasoning = false});
  ResponseEvents events;
  for (const MarkedPiece& piece : DivideAtTokens(text, tokens_)) {
    if (piece.token == nullptr) {
      parser.Push(piece.text, &events);
    } else {
      parser.PushSpecial(piece.text, &events);
    }
  }
  parser.Finish(&events);
  std::string arguments;
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kCallBegin:
        if (event.bytes != name) return false;
        --num_calls;
        arguments.clear();
        break;
      case ResponseEvent::Kind::kArguments:
        arguments += event.bytes;
        break;
      case ResponseEvent::Kind::kCallEnd:
        if (!event.whole || arguments != "{}") return false;
        break;
      default:
        return false;
    }
  }
  return num_calls == 0;
}

absl::Status Writer::CheckName(std::string_view name) {
  if (name.empty() || name.size() > OpenCall::kMaxName || !IsUtf8(name) ||
      std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; })) {
    return absl::InvalidArgumentError("its name is empty, too long or not printable");
  }
  const std::string_view no_arguments =
      form_.field->syntax == ResponseField::Syntax::kJson ? "{}" : "";
  const auto calls = [&](std::string_view called, int num_calls) {
    const std::string shown = NameText(called);
    std::string text = form_.before;
    for (int i = 0; i < num_calls; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : form_.between,
                      FillForm(form_.call, shown, no_arguments));
    }
    return text + form_.after;
  };
  if (!Reads(calls(name, 1), name, 1)) {
    if (!Reads(calls("f", 1), "f", 1)) {
      return absl::UnimplementedError("the calls of the model's format cannot be turned around");
    }
    return absl::InvalidArgumentError("its name is none in this model's format of calls");
  }
  if (!only_one_ && !Reads(calls(name, 2), name, 2)) only_one_ = true;
  return absl::OkStatus();
}

// The common beginning of the first call.
Writer::Pieces Writer::Opening() const {
  return Divide(form_.before + form_.call.substr(0, form_.call.find_first_of("\1\2\6")));
}

std::string Writer::Head() const {
  const Pieces opening = Opening();
  if (opening.empty() || opening.front().kind != CallPiece::Kind::kText) return "";
  return opening.front().text;
}

absl::Status Writer::WriteCalls(std::span<const CallTool> tools, const ParameterTypes& types) {
  const Pieces before = Divide(form_.before);
  Pieces opening = Opening();
  head_ = Head();
  if (CutAtEnd(&opening)) {
    return absl::UnimplementedError("the model's format begins calls with what ends its answers");
  }
  ArgumentGrammar arguments(&lark_, &form_, tokens_, &types);
  std::vector<std::string> first, next, values;
  bool ends = false;
  for (const CallTool& tool : tools) {
    if (absl::Status status = CheckName(tool.name); !status.ok()) {
      return absl::IsUnimplemented(status) ? status : AboutTool(tool.name, status);
    }
    const bool obeys = tool.strict || options_.choice != Choice::kAuto;
    auto schema = ToolSchema::Parse(obeys ? tool.parameters : "");
    if (!schema.ok()) return AboutTool(tool.name, schema.status());
    auto body = arguments.Write(tool.name, *schema);
    if (!body.ok()) return AboutTool(tool.name, body.status());
    if (lark_.is_full()) break;
    if (form_.only_begins && form_.field->syntax == ResponseField::Syntax::kJson) {
      values.push_back(Lark::JsonValue(schema->CallValue("name", tool.name, "parameters")));
    }
    Pieces call = DivideCall(form_.call, tool.name);
    Pieces whole = DivideCall(form_.before + form_.call, tool.name);
    ends |= CutAtEnd(&call);
    CutAtEnd(&whole);
    if (!head_.empty()) {
      whole.front().text.erase(0, head_.size());
      if (whole.front().text.empty()) whole.erase(whole.begin());
    }
    first.push_back(lark_.Rule(Body(whole, *body)));
    if (!only_one_) next.push_back(lark_.Rule(Body(call, *body)));
  }
  only_one_ |= ends;
  first_ = lark_.Rule(absl::StrJoin(first, " | "));
  if (!values.empty()) call_value_ = absl::StrJoin(values, " | ");
  Pieces after = Divide(form_.after);
  CutAtEnd(&after);
  if (ends) after.clear();
  after_ = Body(after, "");
  if (!only_one_) {
    next_ = absl::StrCat("(", Text(form_.between), " (", absl::StrJoin(next, " | "), "))* ");
  }
  return absl::OkStatus();
}

// Text in which the parser finds no call; `any` is a regular expression of how much there may be.
std::string Writer::NoCall(std::string_view any) const {
  std::string body = Lark::Regex(any);
  for (const ResponseField& field : format_.response_template.fields) {
    if (field.channel != ResponseField::Channel::kCalls) continue;
    absl::StrAppend(&body, " & ~",
                    Lark::Regex(absl::StrCat("(?s:.*)", field.open.regex(), "(?s:.*)")));
  }
  return body;
}

// Returns the text that calls begin with, up to their names.
std::string Writer::CallMarker() const {
  const std::optional<std::string>& open = form_.field->open.example();
  return open.has_value() ? open->substr(0, open->find(CallForm::kName)) : "";
}

absl::StatusOr<std::string> Writer::WriteDemand(const GrammarSource& demand) {
  // The lexer takes the longest match, so nothing else may begin like calls. What a call in the
  // middle of a text begins with is shorter than all of that, and costs less beside a demand.
  std::string not_calls = "/(?s:.*)/";
  if (form_.inner_sign.empty()) {
    if (const std::string marker = CallMarker(); !marker.empty() && !form_.only_begins) {
      absl::StrAppend(&not_calls, " & ~(/(?s:.*)/ ", Lark::Literal(marker), " /(?s:.*)/)");
    }
  } else {
    absl::StrAppend(&not_calls, " & ~",
                    Lark::Regex(absl::StrCat("(?s:.*)", form_.inner_sign, "(?s:.*)")));
  }
  if (!head_.empty()) {
    absl::StrAppend(&not_calls, " & ~(", Lark::Literal(head_), " /(?s:.*)/)");
  }
  switch (demand.kind) {
    case GrammarSource::Kind::kJsonObject:
    case GrammarSource::Kind::kJsonSchema: {
      Json schema = demand.kind == GrammarSource::Kind::kJsonObject
                        ? Json{{"type", "object"}}
                        : Json::parse(demand.text, nullptr, /*allow_exceptions=*/false);
      if (schema == true) schema = Json::object();
      if (!schema.is_object()) {
        return absl::InvalidArgumentError("the schema of the text is no JSON object");
      }
      // Two values that may begin alike have to be read by one lexer, with one kind of white space.
      if (form_.only_begins) return lark_.Rule(Lark::JsonValue(std::move(schema)));
      return lark_.Rule(Lark::SpacedJsonValue(WithoutMarker(std::move(schema), CallMarker())));
    }
    case GrammarSource::Kind::kRegex:
      return lark_.Terminal(absl::StrCat(Lark::Regex(demand.text), " & ", not_calls));
    case GrammarSource::Kind::kChoice: {
      if (demand.options.empty()) return absl::InvalidArgumentError("the choice has no options");
      std::vector<std::string> options;
      for (const std::string& option : demand.options) options.push_back(Lark::Literal(option));
      return lark_.Terminal(absl::StrCat("(", absl::StrJoin(options, " | "), ") & ", not_calls));
    }
    case GrammarSource::Kind::kLark:
      return std::string(kInner);
  }
  return absl::InvalidArgumentError("the text's demand is not known");
}

// The beginning of a further part of an answer.
std::string Writer::NextPart() {
  return form_.next_part.empty() ? "" : absl::StrCat("(", Text(form_.next_part), ")? ");
}

std::string Writer::WriteTextFrame() {
  const std::string header = absl::StrCat(NextPart(), Text(form_.text_begin));
  return lark_.Finish(absl::StrCat(header, " ", std::string(kInner)));
}

absl::StatusOr<std::string> Writer::WriteStart() {
  const std::string head = head_.empty() ? "" : Lark::Literal(head_) + " ";
  const std::string block = lark_.Rule(absl::StrCat(first_, " ", next_, after_));
  const std::string next_part = NextPart();
  const std::string lead = lark_.Terminal(kLead);
  const std::string calls = absl::StrCat(lead, "? ", head, block);
  if (options_.choice != Choice::kAuto) {
    return absl::StrCat(next_part, "(", calls, ")");
  }
  const std::string text_begin = form_.text_begin.empty() ? "" : Text(form_.text_begin) + " ";
  if (options_.text.has_value()) {
    ASSIGN_OR_RETURN(const std::string demand, WriteDemand(*options_.text));
    const bool is_json = options_.text->kind == GrammarSource::Kind::kJsonSchema ||
                         options_.text->kind == GrammarSource::Kind::kJsonObject;
    const std::string begins = is_json && !call_value_.empty()
                                   ? lark_.Rule(call_value_)
                                   : absl::StrCat(is_json ? lead + "? " : "", head, block);
    return absl::StrCat(next_part, "(", begins, " | ", text_begin, demand, ")");
  }
  const std::string some = lark_.Terminal(NoCall("(?s:.+)"));
  if (!text_begin.empty()) {
    // Text stands in parts of its own.
    const std::string aside =
        lark_.Rule(absl::StrCat(Text(form_.aside_begin), " ", some, "? ", Text(form_.aside_end)));
    return absl::StrCat(next_part, aside, "* (", head, block, " | ", text_begin, some, "?)");
  }
  const char* const times = only_one_ ? "?" : "*";
  if (head.empty()) {
    return absl::StrCat(some, "? (", block, " ", some, "?)", times);
  }
  if (form_.only_begins) {
    const std::string text = lark_.Terminal(
        absl::StrCat(NoCall("(?s:.*)"), " & ~(/\\s*/ ", Lark::Literal(head_), " /(?s:.*)/)"));
    return absl::StrCat(head, block, " | ", text);
  }
  const std::string up_to_head = lark_.LazyTerminal(
      absl::StrCat(lark_.Terminal(NoCall("(?s:.*)")), " ", Lark::Literal(head_)));
  return absl::StrCat("(", up_to_head, " ", block, ")", times, " ", some, "?");
}

absl::StatusOr<std::string> Writer::Write(std::span<const CallTool> tools,
                                          const ParameterTypes& types) {
  RETURN_IF_ERROR(WriteCalls(tools, types));
  ASSIGN_OR_RETURN(const std::string start, WriteStart());
  if (lark_.is_full()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the grammar of the tools has more than ", Lark::kMaxBytes, " bytes"));
  }
  return lark_.Finish(start);
}

}  // namespace

absl::StatusOr<std::string> CallGrammar(const ResponseFormat& format,
                                        std::span<const CallTool> tools,
                                        std::span<const SpecialToken> tokens,
                                        const CallGrammarOptions& options) {
  if (tools.empty()) return absl::InvalidArgumentError("there are no tools");
  if (tools.size() > kMaxTools) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", tools.size(), " tools, the limit is ", kMaxTools));
  }
  std::set<std::string_view> names;
  const CallTool* named = nullptr;
  ParameterTypes types;
  for (const CallTool& tool : tools) {
    if (!names.insert(tool.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tools have the name ", JsonString(tool.name)));
    }
    if (tool.name == options.name) named = &tool;
    types.Add(tool.name, tool.parameters);
  }
  ASSIGN_OR_RETURN(CallForm form, FindCallForm(format));
  Writer writer(format, std::move(form), tokens, options);
  if (options.choice != Choice::kNamed) return writer.Write(tools, types);
  if (named == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no tool has the name ", JsonString(options.name)));
  }
  return writer.Write(std::span(named, 1), types);
}

std::string TextFrame(const ResponseFormat& format, std::span<const SpecialToken> tokens) {
  absl::StatusOr<CallForm> form = FindCallForm(format);
  if (!form.ok() || form->text_begin.empty()) return "";
  return Writer(format, *std::move(form), tokens, {}).WriteTextFrame();
}

std::string CallHead(const ResponseFormat& format, std::span<const SpecialToken> tokens) {
  absl::StatusOr<CallForm> form = FindCallForm(format);
  if (!form.ok()) return "";
  return Writer(format, *std::move(form), tokens, {}).Head();
}

std::vector<SpecialToken> SpecialTokensOf(const TextModel& model, std::span<const int32_t> ends) {
  std::vector<SpecialToken> tokens;
  for (int32_t id = 0; id < model.vocab_size(); ++id) {
    if (!model.IsSpecial(id)) continue;
    tokens.push_back({std::string(model.TokenBytesKeepSpecial(id)), id,
                      std::find(ends.begin(), ends.end(), id) != ends.end()});
  }
  return tokens;
}

}  // namespace continuo::text
