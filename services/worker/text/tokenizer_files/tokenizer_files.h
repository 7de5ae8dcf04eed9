// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace continuo::text {

// A file that a tokenizer may come in.
struct TokenizerFile {
  std::string_view file;  // its name; "*.tiktoken" is any name that ends so
  std::string_view what;
};

// The files that are read, in the order in which they are looked for.
std::span<const TokenizerFile> TokenizerFiles();

// Returns the one of `names`, a folder's files, that a tokenizer is read from; empty: there is
// none. InvalidArgument where several could be it.
absl::StatusOr<std::string> ChooseTokenizer(std::span<const std::string> names);

}  // namespace continuo::text
