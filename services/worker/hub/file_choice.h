// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/hub/hub_api.h"
#include "services/worker/hub/hub_reference.h"

namespace continuo::hub {

// The files that a worker needs of a repository.
struct FileChoice {
  std::vector<HubFile> files;
  // The file that --model would name, from the repository's root: the first part of a GGUF model.
  // Empty: the folder.
  std::string entry;
};

// Chooses them: the file that `reference` names, with the other parts of a GGUF model; or else
// configuration, tokenizer and safetensors; or else the only GGUF model. NotFound where there is
// nothing of these, or a folder without a tokenizer; InvalidArgument where there are several, which
// it lists.
absl::StatusOr<FileChoice> ChooseFiles(const HubListing& listing, const HubReference& reference);

}  // namespace continuo::hub
