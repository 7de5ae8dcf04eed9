// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
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

}  // namespace continuo::testing
