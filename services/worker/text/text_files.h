// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace continuo::text {

// A file that a tokenizer may come in.
struct TokenizerFile {
  std::string_view file, what;
};

// The files that are read, in the order in which they are looked for.
std::span<const TokenizerFile> TokenizerFiles();

// Looks at the files of a model's folder that text depends on, before they are parsed. NotFound
// where there is no tokenizer.json, with what is there instead and what to do; InvalidArgument
// where a file is of another kind (foreign_file.h), or a small one is not JSON, by line and column.
absl::Status CheckTextFiles(const std::string& model_dir);

}  // namespace continuo::text
