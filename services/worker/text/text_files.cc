// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/text_files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/base/foreign_file.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"

namespace continuo::text {
namespace {

namespace fs = std::filesystem;

// The depth at which serde_json ends, too.
constexpr int kMaxDepth = 127;
// A larger file is refused where it is parsed.
constexpr uintmax_t kMaxJsonBytes = 64 << 20;

// Files that a tokenizer.json can be made of.
struct OtherTokenizer {
  std::string_view file, what;
};

constexpr OtherTokenizer kOtherTokenizers[] = {
    {"tokenizer.model", "a SentencePiece model"},
    {"spiece.model", "a SentencePiece model"},
    {"sentencepiece.bpe.model", "a SentencePiece model"},
    {"tekken.json", "Mistral's tokenizer"},
    {"qwen.tiktoken", "a tiktoken file"},
    {"tiktoken.model", "a tiktoken file"},
    {"vocab.json", "a vocabulary of the older form"},
    {"vocab.txt", "a vocabulary of the older form"},
};

constexpr TokenizerFile kTokenizerFiles[] = {
    {"tokenizer.json", "Hugging Face's tokenizers"},
};

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

absl::Status NoTokenizer(const fs::path& dir) {
  const std::string folder = dir.string();
  for (const OtherTokenizer& other : kOtherTokenizers) {
    if (!Exists(dir / other.file)) continue;
    return absl::NotFoundError(absl::StrCat(
        folder, ": has no tokenizer.json, but ", std::string(other.file), ", ",
        std::string(other.what),
        "; make tokenizer.json of it once with Python: from transformers import AutoTokenizer; "
        "AutoTokenizer.from_pretrained(\"",
        folder, "\").save_pretrained(\"", folder, "\")"));
  }
  return absl::NotFoundError(absl::StrCat(folder, ": has no tokenizer.json"));
}

absl::Status CheckFile(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error) && !fs::exists(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": is a symbolic link to ",
                                                   fs::read_symlink(path, error).string(),
                                                   ", which is not there"));
  }
  if (!fs::is_regular_file(path, error)) return absl::OkStatus();
  if (const std::string foreign = ForeignFileAt(path.string()); !foreign.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", foreign));
  }
  // The tokenizer's own parser tells line and column, and a vocabulary may name a token twice.
  if (path.extension() != ".json" || path.filename() == "tokenizer.json") return absl::OkStatus();
  if (fs::file_size(path, error) > kMaxJsonBytes) return absl::OkStatus();
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return CheckJson(path.string(), text, kMaxDepth);
}

}  // namespace

std::span<const TokenizerFile> TokenizerFiles() { return kTokenizerFiles; }

absl::Status CheckTextFiles(const std::string& model_dir) {
  const fs::path dir(model_dir);
  if (!Exists(dir / "tokenizer.json")) return NoTokenizer(dir);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "chat_template.json"}) {
    RETURN_IF_ERROR(CheckFile(dir / name));
  }
  return absl::OkStatus();
}

}  // namespace continuo::text
