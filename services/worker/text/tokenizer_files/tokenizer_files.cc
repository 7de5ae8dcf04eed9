// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/tokenizer_files/tokenizer_files.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace continuo::text {
namespace {

constexpr TokenizerFile kTokenizerFiles[] = {
    {"tokenizer.json", "Hugging Face's tokenizers"},
    {"tekken.json", "Mistral's byte-level BPE"},
    {"tokenizer.model", "SentencePiece's BPE and unigram models, or tiktoken's lines"},
    {"spiece.model", "SentencePiece's BPE and unigram models"},
    {"sentencepiece.bpe.model", "SentencePiece's BPE and unigram models"},
    {"tiktoken.model", "byte-level BPE by ranks"},
    {"*.tiktoken",
     "byte-level BPE by ranks: Qwen's and o200k, or any whose tokenizer_config.json has pat_str"},
};

bool IsNamed(const TokenizerFile& kind, std::string_view name) {
  return kind.file.starts_with('*') ? name.ends_with(kind.file.substr(1)) : name == kind.file;
}

}  // namespace

std::span<const TokenizerFile> TokenizerFiles() { return kTokenizerFiles; }

absl::StatusOr<std::string> ChooseTokenizer(std::span<const std::string> names) {
  for (const TokenizerFile& kind : kTokenizerFiles) {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      if (IsNamed(kind, name)) found.push_back(name);
    }
    if (found.size() == 1) return found[0];
    if (found.size() > 1) {
      std::ranges::sort(found);
      return absl::InvalidArgumentError(
          absl::StrCat("has several tokenizers: ", absl::StrJoin(found, ", ")));
    }
  }
  return "";
}

}  // namespace continuo::text
