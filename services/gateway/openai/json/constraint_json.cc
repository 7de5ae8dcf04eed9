// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/constraint_json.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/chat_members.h"
#include "services/gateway/openai/json/tools_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr char kFormat[] = "response_format", kOutputs[] = "structured_outputs";

// Returns whether a line begins a rule as GBNF and EBNF write it: a name, then "::=". Lark has a
// colon.
bool IsGbnf(std::string_view grammar) {
  constexpr std::string_view kBlank = " \t\r\n";
  constexpr std::string_view kName =
      "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (size_t at = 0; at < grammar.size();) {
    const size_t name = std::min(grammar.find_first_not_of(kBlank, at), grammar.size());
    const size_t end = std::min(grammar.find_first_not_of(kName, name), grammar.size());
    const size_t sign = std::min(grammar.find_first_not_of(kBlank, end), grammar.size());
    if (end > name && grammar.substr(sign).starts_with("::=")) return true;
    at = std::min(grammar.find('\n', name), grammar.size());
  }
  return false;
}

// A value of the body: its path, itself, and its text.
struct Value {
  std::string path;
  const Json* json = nullptr;  // null: it is missing, or null
  std::string_view text;

  Value Member(const char* name) const {
    return {absl::StrCat(path, ".", name), Find(*json, name), MemberText(text, name)};
  }
};

// Takes one constraint, and refuses a second.
class ConstraintReader {
 public:
  ConstraintReader(v1::Constraint* constraint, std::string* member)
      : constraint_(constraint), member_(member) {}

  enum class SchemaForm : uint8_t { kObject, kObjectOrText };

  // Each does nothing where the value is missing.
  absl::Status Schema(const Value& value, SchemaForm form) {
    if (value.json == nullptr) return absl::OkStatus();
    if (value.json->is_object()) {
      RETURN_IF_ERROR(Claim(value.path));
      constraint_->set_json_schema(std::string(value.text));
      return absl::OkStatus();
    }
    if (form == SchemaForm::kObject) return WrongType(value.path, "an object", *value.json);
    if (!value.json->is_string()) {
      return WrongType(value.path, "an object or a string with one", *value.json);
    }
    RETURN_IF_ERROR(Claim(value.path));
    constraint_->set_json_schema(value.json->get<std::string>());
    return absl::OkStatus();
  }

  absl::Status Regex(const Value& value) {
    if (value.json == nullptr) return absl::OkStatus();
    if (!value.json->is_string()) return WrongType(value.path, "a string", *value.json);
    RETURN_IF_ERROR(Claim(value.path));
    constraint_->set_regex(value.json->get<std::string>());
    return absl::OkStatus();
  }

  absl::Status Grammar(const Value& value) {
    if (value.json == nullptr) return absl::OkStatus();
    if (!value.json->is_string()) return WrongType(value.path, "a string", *value.json);
    auto grammar = value.json->get<std::string>();
    if (grammar.empty()) return absl::OkStatus();
    if (IsGbnf(grammar)) {
      return protocol::FieldError(value.path, "is GBNF or EBNF (\"::=\"); only Lark is read");
    }
    RETURN_IF_ERROR(Claim(value.path));
    constraint_->set_lark(std::move(grammar));
    return absl::OkStatus();
  }

  absl::Status Choice(const Value& value) {
    if (value.json == nullptr) return absl::OkStatus();
    if (!value.json->is_array()) return WrongType(value.path, "an array of strings", *value.json);
    RETURN_IF_ERROR(Claim(value.path));
    v1::Choice& choice = *constraint_->mutable_choice();
    for (size_t i = 0; i < value.json->size(); ++i) {
      const Json& option = (*value.json)[i];
      if (!option.is_string()) {
        return WrongType(absl::StrCat(value.path, "[", i, "]"), "a string", option);
      }
      choice.add_options(option.get<std::string>());
    }
    return absl::OkStatus();
  }

  absl::Status JsonObject(std::string path) {
    RETURN_IF_ERROR(Claim(std::move(path)));
    constraint_->set_json_object(true);
    return absl::OkStatus();
  }

 private:
  absl::Status Claim(std::string path) {
    if (!member_->empty()) {
      return protocol::FieldError(path, absl::StrCat("is not possible together with ", *member_));
    }
    *member_ = std::move(path);
    return absl::OkStatus();
  }

  v1::Constraint* constraint_;
  std::string* member_;
};

using SchemaForm = ConstraintReader::SchemaForm;

// Reads {"type": "json_schema"}: OpenAI's own object, llama.cpp's schema beside the type, or TGI's
// value.
absl::Status ReadSchemaFormat(const Value& format, ConstraintReader& reader) {
  RETURN_IF_ERROR(CheckObject(chats::kSchemaFormat, *format.json, format.path));
  const Value beside = format.Member("schema");
  RETURN_IF_ERROR(reader.Schema(beside, SchemaForm::kObject));
  Value named = format.Member("json_schema");
  if (const Value value = format.Member("value"); value.json != nullptr) {
    if (named.json != nullptr) {
      return protocol::FieldError(value.path,
                                  absl::StrCat("is not possible together with ", named.path));
    }
    named = value;
  }
  if (named.json == nullptr) {
    if (beside.json != nullptr) return absl::OkStatus();
    return protocol::FieldError(named.path, "is needed");
  }
  if (!named.json->is_object()) return WrongType(named.path, "an object", *named.json);
  RETURN_IF_ERROR(CheckObject(chats::kNamedSchema, *named.json, named.path));
  // An answer matches the schema whether or not that is strict.
  if (const Value strict = named.Member("strict");
      strict.json != nullptr && !strict.json->is_boolean()) {
    return WrongType(strict.path, "a boolean", *strict.json);
  }
  const Value schema = named.Member("schema");
  if (schema.json == nullptr) return protocol::FieldError(schema.path, "is needed");
  return reader.Schema(schema, SchemaForm::kObject);
}

absl::Status ReadFormat(const Value& format, ConstraintReader& reader) {
  if (format.json == nullptr) return absl::OkStatus();
  if (!format.json->is_object()) return WrongType(format.path, "an object", *format.json);
  const Value type = format.Member("type");
  if (type.json == nullptr) return protocol::FieldError(type.path, "is needed");
  if (!type.json->is_string()) return WrongType(type.path, "a string", *type.json);
  const auto name = type.json->get<std::string>();
  if (name == "text") {
    return CheckObject(chats::kTextFormat, *format.json, format.path);
  }
  if (name == "json_schema") return ReadSchemaFormat(format, reader);
  if (name == "json_object" || name == "json") {
    RETURN_IF_ERROR(CheckObject(chats::kObjectFormat, *format.json, format.path));
    RETURN_IF_ERROR(reader.Schema(format.Member("schema"), SchemaForm::kObject));
    RETURN_IF_ERROR(reader.Schema(format.Member("value"), SchemaForm::kObjectOrText));
    const bool has_schema =
        format.Member("schema").json != nullptr || format.Member("value").json != nullptr;
    return has_schema ? absl::OkStatus() : reader.JsonObject(format.path);
  }
  if (name == "regex") {
    RETURN_IF_ERROR(CheckObject(chats::kRegexFormat, *format.json, format.path));
    RETURN_IF_ERROR(reader.Regex(format.Member("pattern")));
    const Value value = format.Member("value");
    if (value.json == nullptr && format.Member("pattern").json == nullptr) {
      return protocol::FieldError(value.path, "is needed");
    }
    return reader.Regex(value);
  }
  return protocol::FieldError(type.path,
                              "must be \"text\", \"json_object\", \"json_schema\" or \"regex\"");
}

absl::Status ReadOutputs(const Value& outputs, ConstraintReader& reader) {
  if (outputs.json == nullptr) return absl::OkStatus();
  if (!outputs.json->is_object()) return WrongType(outputs.path, "an object", *outputs.json);
  RETURN_IF_ERROR(CheckObject(chats::kStructuredOutputs, *outputs.json, outputs.path));
  RETURN_IF_ERROR(reader.Schema(outputs.Member("json"), SchemaForm::kObjectOrText));
  RETURN_IF_ERROR(reader.Regex(outputs.Member("regex")));
  RETURN_IF_ERROR(reader.Choice(outputs.Member("choice")));
  RETURN_IF_ERROR(reader.Grammar(outputs.Member("grammar")));
  const Value object = outputs.Member("json_object");
  if (object.json == nullptr) return absl::OkStatus();
  if (!object.json->is_boolean()) return WrongType(object.path, "a boolean", *object.json);
  return object.json->get<bool>() ? reader.JsonObject(object.path) : absl::OkStatus();
}

// llama.cpp's server reads GBNF, and Lark behind this directive.
absl::Status ReadLlamaCppGrammar(const Value& grammar, ConstraintReader& reader) {
  if (grammar.json != nullptr && grammar.json->is_string()) {
    const auto text = grammar.json->get<std::string>();
    if (!text.empty() && !text.starts_with("%llguidance")) {
      return protocol::FieldError(grammar.path,
                                  "is GBNF, as it does not begin with \"%llguidance\"; only Lark "
                                  "is read");
    }
  }
  return reader.Grammar(grammar);
}

}  // namespace

absl::Status ReadConstraint(const Json& body, std::string_view text, v1::Constraint* constraint,
                            std::string* member) {
  ConstraintReader reader(constraint, member);
  const auto value = [&](const char* name) {
    const Json* const json = Find(body, name);
    // The look-up reads the whole body.
    return Value{name, json, json == nullptr ? std::string_view() : MemberText(text, name)};
  };
  RETURN_IF_ERROR(ReadFormat(value(kFormat), reader));
  RETURN_IF_ERROR(ReadOutputs(value(kOutputs), reader));
  RETURN_IF_ERROR(reader.Schema(value("guided_json"), SchemaForm::kObjectOrText));
  RETURN_IF_ERROR(reader.Regex(value("guided_regex")));
  RETURN_IF_ERROR(reader.Choice(value("guided_choice")));
  RETURN_IF_ERROR(reader.Grammar(value("guided_grammar")));
  RETURN_IF_ERROR(reader.Schema(value("json_schema"), SchemaForm::kObjectOrText));
  RETURN_IF_ERROR(reader.Regex(value("regex")));
  return ReadLlamaCppGrammar(value("grammar"), reader);
}

}  // namespace continuo::gateway::openai
