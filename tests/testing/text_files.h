// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/check.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/temp_folder.h"

namespace continuo::testing {

// The contents of the files of a model's folder that text depends on. An empty file is not written.
struct TextFiles {
  std::string_view tokenizer_json, tokenizer_config_json, special_tokens_map_json, chat_template;
};

// A temporary folder of these files.
class TextFolder {
 public:
  explicit TextFolder(const TextFiles& files) {
    Write("tokenizer.json", files.tokenizer_json);
    Write("tokenizer_config.json", files.tokenizer_config_json);
    Write("special_tokens_map.json", files.special_tokens_map_json);
    Write("chat_template.jinja", files.chat_template);
  }
  std::string path() const { return folder_.path().string(); }

 private:
  void Write(const char* name, std::string_view text) {
    if (text.empty()) return;
    std::ofstream(folder_.path() / name, std::ios::binary)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
  }

  TempFolder folder_;
};

// Opens a TextModel from such a folder, which is gone when this returns.
inline absl::StatusOr<std::unique_ptr<text::TextModel>> OpenText(const TextFiles& files) {
  return text::TextModel::Open(TextFolder(files).path());
}

// Opens a model with one token for each byte, which is its id.
inline std::unique_ptr<text::TextModel> OpenBytes() {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    char entry[32];
    std::snprintf(entry, sizeof entry, "%s\"<0x%02X>\": %d", byte > 0 ? ", " : "", byte, byte);
    vocab += entry;
  }
  const std::string json = R"({"version": "1.0", "added_tokens": [],
      "decoder": {"type": "ByteFallback"},
      "model": {"type": "WordLevel", "unk_token": "<0x00>", "vocab": {)" +
                           vocab + "}}}";
  auto model = OpenText({.tokenizer_json = json});
  CONTINUO_CHECK(model.ok());
  return *std::move(model);
}

}  // namespace continuo::testing
