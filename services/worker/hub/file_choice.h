// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
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
// nothing of these, or a folder without a tokenizer, or one of numbered parts is missing that no
// index tells of; InvalidArgument where there are several, which it lists.
//
// A folder's files are in the order in which they are to be fetched: weights are the last.
absl::StatusOr<FileChoice> ChooseFiles(const HubListing& listing, const HubReference& reference);

// The index of weights that are split; a model of one file has none.
inline constexpr std::string_view kWeightsIndex = "model.safetensors.index.json";

// The files that the text of an index names, each once. InvalidArgument where it is no index.
absl::StatusOr<std::vector<std::string>> IndexedFiles(std::string_view index);

}  // namespace continuo::hub
