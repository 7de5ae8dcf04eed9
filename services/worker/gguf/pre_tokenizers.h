// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace continuo::gguf {

// The pre-tokenizer that tokenizer.ggml.pre names, in the words of tokenizer.json.
struct PreTokenizer {
  nlohmann::ordered_json pre_tokenizer;
  nlohmann::ordered_json normalizer;  // null: none
  bool ignore_merges = false;         // a word that is a token is that one
  bool adds_bos = false;              // where tokenizer.ggml.add_bos_token does not say
};

// The names of all rules that are known.
std::vector<std::string_view> PreTokenizerNames();

// Unimplemented names a rule that is not known and lists those that are.
absl::StatusOr<PreTokenizer> FindPreTokenizer(std::string_view name);

}  // namespace continuo::gguf
