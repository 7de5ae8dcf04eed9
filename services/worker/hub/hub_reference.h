// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace continuo::hub {

// A model in a hub, as --model names it: hf://org/name[@revision][:file].
struct HubReference {
  std::string repository;         // "org/name"
  std::string revision = "main";  // a branch, a tag or a commit
  // A file of the repository, or a word that the names of its GGUF files are searched for
  // ("Q4_K_M"). Empty: the whole model.
  std::string file;
};

// True for a text that begins with hf://.
bool IsHubReference(std::string_view text);

// InvalidArgument names the part that cannot be one. No part leads out of a folder that it names a
// file in.
absl::StatusOr<HubReference> ParseHubReference(std::string_view text);

// True for a relative path of at most 1,024 bytes, of plain names with "/" between them: no name is
// "." or "..", or has a control character or a backslash.
bool IsPlainPath(std::string_view path);

inline constexpr size_t kCommitDigits = 40;  // of a commit's name

// True for `size` hexadecimal digits in lower case.
bool IsHexDigits(std::string_view text, size_t size);

}  // namespace continuo::hub
