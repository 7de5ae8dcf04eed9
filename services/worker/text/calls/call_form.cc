// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/call_form.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/text/calls/call_spelling.h"
#include "services/worker/text/response/json_scanner.h"
#include "services/worker/text/response/pattern_text.h"

namespace continuo::text {
namespace {

using Syntax = ResponseField::Syntax;

static_assert(CallForm::kName == kNameInExample && CallForm::kKey == kKeyInExample);

// The forms of the built-in formats. Where a format has several, the first one whose `call` or
// `before` has its `sign` in the chat template's call is meant, else the first.
struct Known {
  std::string_view format;
  std::string_view before, call, between, after;
  std::string_view parameter = {};
  bool only_one = false;
  std::string_view sign = {};
};

constexpr Known kKnown[] = {
    {"hermes", "", "<tool_call>\n{\"name\": \"\1\", \"arguments\": \2}\n</tool_call>", "\n", ""},
    {"qwen_xml", "", "<tool_call>\n<function=\1>\n\2</function>\n</tool_call>", "\n", "",
     "<parameter=\3>\n\4\n</parameter>\n"},
    {"qwen_xml", "", "<seed:tool_call>\n<function=\1>\n\2</function>\n</seed:tool_call>", "\n", "",
     "<parameter=\3>\4</parameter>\n", false, "<seed:tool_call>"},
    {"glm", "", "<tool_call>\1\n\2</tool_call>", "\n", "",
     "<arg_key>\3</arg_key>\n<arg_value>\4</arg_value>\n"},
    {"functionary", "", "<function=\1>\2</function>", "", ""},
    {"harmony", "", "<|channel|>commentary to=functions.\1 <|constrain|>json<|message|>\2<|call|>",
     "", "", "", true},
    {"gemma", "", "<|tool_call>call:\1\2<tool_call|>", "", ""},
    {"deepseek", "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\1\n```json\n\2\n```<｜tool▁call▁end｜>", "\n",
     "<｜tool▁calls▁end｜>"},
    {"deepseek", "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>\1<｜tool▁sep｜>\2<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>", "",
     false, "<｜tool▁call▁begin｜>\1"},
    {"deepseek_dsml", "<｜DSML｜function_calls>\n",
     "<｜DSML｜invoke name=\"\1\">\n\2</｜DSML｜invoke>\n", "", "</｜DSML｜function_calls>",
     "<｜DSML｜parameter name=\"\3\" string=\"\5\">\4</｜DSML｜parameter>\n"},
    {"deepseek_dsml", "<｜DSML｜tool_calls>\n",
     "<｜DSML｜invoke name=\"\1\">\n\2</｜DSML｜invoke>\n", "", "</｜DSML｜tool_calls>",
     "<｜DSML｜parameter name=\"\3\" string=\"\5\">\4</｜DSML｜parameter>\n", false,
     "<｜DSML｜tool_calls>"},
    {"minimax", "<minimax:tool_call>\n", "<invoke name=\"\1\">\n\2</invoke>\n", "",
     "</minimax:tool_call>", "<parameter name=\"\3\">\4</parameter>\n"},
    {"minicpm", "", "<function name=\"\1\">\2</function>", "\n", "",
     "<param name=\"\3\">\4</param>"},
    {"kimi", "<|tool_calls_section_begin|>",
     "<|tool_call_begin|>functions.\1:\6<|tool_call_argument_begin|>\2<|tool_call_end|>", "",
     "<|tool_calls_section_end|>"},
    {"mistral_args", "", "[TOOL_CALLS]\1[ARGS]\2", "", ""},
    {"mistral", "[TOOL_CALLS][", "{\"name\": \"\1\", \"arguments\": \2}", ", ", "]"},
    {"cohere", "<|START_ACTION|>[\n",
     "    {\"tool_call_id\": \"\6\", \"tool_name\": \"\1\", \"parameters\": \2}", ",\n",
     "\n]<|END_ACTION|>"},
    {"granite", "<|tool_call|>[", "{\"name\": \"\1\", \"arguments\": \2}", ", ", "]"},
    {"granite", "<tool_call>[", "{\"name\": \"\1\", \"arguments\": \2}", ", ", "]", "", false,
     "<tool_call>"},
    {"gigachat", "", "<|function_call|>{\"name\": \"\1\", \"arguments\": \2}", "", "", "", true},
    {"toolcall_list", "<TOOLCALL>[", "{\"name\": \"\1\", \"arguments\": \2}", ", ", "]</TOOLCALL>"},
    {"toolcall_list", "<tool_calls>[", "{\"name\": \"\1\", \"arguments\": \2}", ", ",
     "]</tool_calls>", "", false, "<tool_calls>"},
    {"lfm2", "<|tool_call_start|>[", "\1(\2)", ", ", "]<|tool_call_end|>"},
    {"llama3", "", "{\"name\": \"\1\", \"parameters\": \2}", "; ", "", "", true},
    {"pythonic", "[", "\1(\2)", ", ", "]"},
    {"pythonic", "<|python_start|>[", "\1(\2)", ", ", "]<|python_end|>", "", false,
     "<|python_start|>"},
};

// Returns whether the chat template's own call has this.
bool Shows(const ResponseFormat& format, std::string_view sign) {
  return format.example.find(FillForm(sign, format.example_name, "")) != std::string::npos;
}

const ResponseField* FieldOfCalls(const ResponseFormat& format) {
  for (const ResponseField& field : format.response_template.fields) {
    if (field.channel == ResponseField::Channel::kCalls) return &field;
  }
  return nullptr;
}

absl::Status CannotTurn(std::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("the model's response_template has ", std::string(what)));
}

// The form of a response_template that is the model's own.
absl::StatusOr<CallForm> TurnAround(const ResponseField& field) {
  CallForm form{.field = &field};
  const std::optional<std::string>& open = field.open.example();
  if (!open.has_value()) return CannotTurn("an \"open\" that leaves characters to choose");
  std::string close;
  if (field.has_close) {
    if (!field.close.example().has_value()) {
      return CannotTurn("a \"close\" that leaves characters to choose");
    }
    close = *field.close.example();
  }
  const std::string name(1, CallForm::kName), arguments(1, CallForm::kArguments);
  switch (field.syntax) {
    case Syntax::kJson:
      if (field.name_in_open && field.arguments_key.empty()) {
        form.call = absl::StrCat(*open, arguments, close);
      } else if (field.name_in_open) {
        form.call =
            absl::StrCat(*open, "{", JsonString(field.arguments_key), ": ", arguments, "}", close);
      } else {
        form.name_is_json = true;
        form.call = absl::StrCat(*open, "{", JsonString(field.name_key), ": \"", name, "\", ",
                                 JsonString(field.arguments_key), ": ", arguments, "}", close);
      }
      return form;
    case Syntax::kTags:
      if (!field.tag_open.example().has_value() || !field.tag_close.example().has_value()) {
        return CannotTurn("a \"tag_pattern\" that leaves characters to choose");
      }
      form.call = absl::StrCat(*open, arguments, close);
      form.parameter = *field.tag_open.example() + CallForm::kValue + *field.tag_close.example();
      return form;
    case Syntax::kPython:
      if (field.name_in_open) {
        form.call = absl::StrCat(*open, arguments, ")", close);
        return form;
      }
      form.before = *open + "[";
      form.call = absl::StrCat(name, "(", arguments, ")");
      form.between = ", ";
      form.after = "]" + close;
      return form;
  }
  return CannotTurn("a content that is not known");
}

}  // namespace

std::string FillForm(std::string_view form, std::string_view name, std::string_view arguments,
                     std::string_view key, std::string_view value) {
  std::string text;
  for (const char c : form) {
    switch (c) {
      case CallForm::kName:
        text += name;
        break;
      case CallForm::kArguments:
        text += arguments;
        break;
      case CallForm::kKey:
        text += key;
        break;
      case CallForm::kValue:
        text += value;
        break;
      case CallForm::kIsString:
        text += "true";
        break;
      case CallForm::kNumber:
        text += "0";
        break;
      default:
        text += c;
    }
  }
  return text;
}

absl::StatusOr<CallForm> FindCallForm(const ResponseFormat& format) {
  const ResponseField* field = FieldOfCalls(format);
  if (field == nullptr) {
    return absl::UnimplementedError("the model's format of answers has no calls of tools");
  }
  const Known* found = nullptr;
  for (const Known& known : kKnown) {
    if (known.format != format.name) continue;
    const bool is_shown = !known.sign.empty() && Shows(format, known.sign);
    if (found == nullptr || is_shown) found = &known;
    if (is_shown) break;
  }
  if (found == nullptr) return TurnAround(*field);
  CallForm form{.field = field,
                .before = std::string(found->before),
                .call = std::string(found->call),
                .between = std::string(found->between),
                .after = std::string(found->after),
                .parameter = std::string(found->parameter),
                .name_is_json = field->syntax == Syntax::kJson && !field->name_in_open,
                .only_one = found->only_one};
  form.only_begins = format.name == "llama3" || format.name == "pythonic";
  if (format.name == "llama3") form.inner_sign = ";\\s*[{<]";
  if (format.name == "harmony") {
    form.next_part = "<|start|>assistant";
    form.text_begin = "<|channel|>final<|message|>";
    form.aside_begin = "<|channel|>commentary<|message|>";
    form.aside_end = "<|end|><|start|>assistant";
  }
  return format.example.empty() ? form : SpeltAsShown(std::move(form), format);
}

}  // namespace continuo::text
