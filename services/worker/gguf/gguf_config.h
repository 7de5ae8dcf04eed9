// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/worker/gguf/gguf_file.h"

namespace continuo::gguf {

// The configuration of a GGUF model as the texts of Hugging Face's files, which are checked as
// those are.
struct ConfigTexts {
  std::string config, generation_config;
};

// Unimplemented names an architecture or a key of it that is not known: a key that changes the
// answer must not be ignored.
absl::StatusOr<ConfigTexts> ConfigOf(const GgufFile& file);

}  // namespace continuo::gguf
