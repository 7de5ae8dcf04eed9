// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/text/calls/call_form.h"
#include "services/worker/text/calls/lark.h"
#include "services/worker/text/calls/marked_text.h"
#include "services/worker/text/calls/tool_schema.h"
#include "services/worker/text/response/tag_call_reader.h"

namespace continuo::text {

// Writes the grammar of what stands at CallForm::kArguments in a call of a tool. What it allows is
// read back as an object of the schema.
class ArgumentGrammar {
 public:
  // All outlive it. `types` are those of all tools, as the answer's parser has them.
  ArgumentGrammar(Lark* lark, const CallForm* form, std::span<const SpecialToken> tokens,
                  const ParameterTypes* types)
      : lark_(*lark), form_(*form), tokens_(tokens), types_(*types) {}

  // Returns a part of a body, which may be empty. InvalidArgument names what the form cannot have.
  absl::StatusOr<std::string> Write(std::string_view tool, const ToolSchema& schema);

 private:
  using Json = ToolSchema::Json;
  // The alternatives of a tag's value.
  struct TagValue {
    std::vector<std::string> texts;   // parts of one terminal
    bool may_be_empty = false;        // no text is one, too
    std::vector<std::string> values;  // parts of a body
  };

  absl::StatusOr<std::string> WriteTags(std::string_view tool, const ToolSchema& schema);
  absl::StatusOr<std::string> WriteTag(std::string_view tool, std::string_view key,
                                       const Json& property, const ToolSchema& schema);
  absl::Status AddTagValues(std::string_view tool, std::string_view key, const Json& property,
                            const ToolSchema& schema, const std::string& any_text,
                            TagValue* values);
  // A parameter with its value; `key` is a part of a body where it is no literal.
  std::string Tag(const std::string& key, bool key_is_literal, const TagValue& values);
  std::string TagJson(const Json& property, const ToolSchema& schema);
  std::string AnyText(uint8_t types, bool numbers_are_values);
  // Returns the value that the reader takes a tag's text for; none where it is not read as one
  // value of this key.
  std::optional<Json> Read(std::string_view tool, std::string_view key, std::string_view text,
                           const ParameterTypes& types) const;
  absl::StatusOr<std::string> WriteKeywords(const ToolSchema& schema);
  std::string WriteLaxJson(const ToolSchema& schema);
  std::string Text(std::string_view text) const { return LarkOf(DivideAtTokens(text, tokens_)); }

  Lark& lark_;
  const CallForm& form_;
  const std::span<const SpecialToken> tokens_;
  const ParameterTypes& types_;
};

}  // namespace continuo::text
