// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/worker/gguf/gguf_file.h"

namespace continuo::gguf {

// The tokenizer of a GGUF model as the texts of Hugging Face's files, which are checked as those
// are. tokenizer_config.json has the chat templates.
struct TokenizerTexts {
  std::string tokenizer, tokenizer_config;
};

// InvalidArgument names what is missing or does not fit; Unimplemented a kind of tokenizer or a
// pre-tokenizer that is not known.
absl::StatusOr<TokenizerTexts> TokenizerOf(const GgufFile& file);

}  // namespace continuo::gguf
