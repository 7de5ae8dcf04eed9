// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace continuo::text {

// Looks at the files of a model's folder that text depends on, before they are parsed, and returns
// the name of the one that the tokenizer is read from. NotFound where there is none, with what is
// there instead and what to do; InvalidArgument where a file is of another kind (foreign_file.h),
// or a small one is not JSON, by line and column.
absl::StatusOr<std::string> CheckTextFiles(const std::string& model_dir);

}  // namespace continuo::text
