// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/text_files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/foreign_file.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"
#include "services/worker/text/tokenizer_files/tokenizer_files.h"

namespace continuo::text {
namespace {

namespace fs = std::filesystem;

// The depth at which serde_json ends, too.
constexpr int kMaxDepth = 127;
// A larger file is refused where it is parsed.
constexpr uintmax_t kMaxJsonBytes = 64 << 20;

// A tokenizer.json can be made of these files.
constexpr std::string_view kOlderVocabularies[] = {"vocab.json", "vocab.txt"};

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

absl::Status NoTokenizer(const fs::path& dir) {
  const std::string folder = dir.string();
  for (const std::string_view other : kOlderVocabularies) {
    if (!Exists(dir / other)) continue;
    return absl::NotFoundError(absl::StrCat(
        folder, ": has no tokenizer.json, but ", std::string(other),
        ", a vocabulary of the older form; make tokenizer.json of it once with Python: from "
        "transformers import AutoTokenizer; AutoTokenizer.from_pretrained(\"",
        folder, "\").save_pretrained(\"", folder, "\")"));
  }
  return absl::NotFoundError(absl::StrCat(folder, ": has no tokenizer.json"));
}

// The name of the first file in the folder that a tokenizer is read from; NotFound: there is none.
absl::StatusOr<std::string> FindTokenizer(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  absl::StatusOr<std::string> name = ChooseTokenizer(names);
  if (!name.ok()) {
    return absl::Status(name.status().code(),
                        absl::StrCat(dir.string(), ": ", name.status().message()));
  }
  if (!name->empty()) return name;
  return NoTokenizer(dir);
}

absl::Status CheckFile(const fs::path& path, bool is_tokenizer) {
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
  if (path.extension() != ".json" || is_tokenizer) return absl::OkStatus();
  if (fs::file_size(path, error) > kMaxJsonBytes) return absl::OkStatus();
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return CheckJson(path.string(), text, kMaxDepth);
}

}  // namespace

absl::StatusOr<std::string> CheckTextFiles(const std::string& model_dir) {
  const fs::path dir(model_dir);
  ASSIGN_OR_RETURN(const std::string tokenizer, FindTokenizer(dir));
  std::vector<std::string> names = {tokenizer, "tokenizer_config.json", "special_tokens_map.json",
                                    "chat_template.jinja", "chat_template.json"};
  // tokenizer.json has them itself.
  if (tokenizer != "tokenizer.json") names.push_back("added_tokens.json");
  for (const std::string& name : names) {
    RETURN_IF_ERROR(CheckFile(dir / name, name == tokenizer));
  }
  return tokenizer;
}

}  // namespace continuo::text
