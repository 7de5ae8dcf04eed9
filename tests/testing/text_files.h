// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/temp_folder.h"

namespace continuo::testing {

// The contents of the files of a model's folder that text depends on; an empty one is not written.
struct TextFiles {
  std::string_view tokenizer_json, tokenizer_config_json, special_tokens_map_json, chat_template;
};

// Opens a TextModel from a folder of these files, which is gone when this returns.
inline absl::StatusOr<std::unique_ptr<text::TextModel>> OpenText(const TextFiles& files) {
  const TempFolder folder;
  const auto write = [&folder](const char* name, std::string_view text) {
    if (text.empty()) return;
    std::ofstream(folder.path() / name, std::ios::binary)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
  };
  write("tokenizer.json", files.tokenizer_json);
  write("tokenizer_config.json", files.tokenizer_config_json);
  write("special_tokens_map.json", files.special_tokens_map_json);
  write("chat_template.jinja", files.chat_template);
  return text::TextModel::Open(folder.path().string());
}

}  // namespace continuo::testing
