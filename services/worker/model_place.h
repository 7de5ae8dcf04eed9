// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace continuo::worker {

// Where a model's files are, and the name that it is served by unless a flag says otherwise.
struct ModelPlace {
  // A Hugging Face folder or a GGUF file, links to folders resolved once; or hf://…, a model that
  // is fetched later (fetch_models.h).
  std::string path;
  std::string name;
};

// Finds the model that --model=`path` means:
// * a folder, or a GGUF file, itself; its name is the folder's, or the file's without the ending;
// * a folder of a hub's cache (models--org--name): its snapshot refs/main, or the only one; its
//   name is org/name, as that of a folder of a snapshot;
// * a manifest of an Ollama store (manifests/host/library/NAME/TAG): the model's blob beside it;
//   its name is NAME:TAG, or NAME where the tag is "latest";
// * hf://org/name[@revision][:file], a model of a hub: its name is org/name.
// InvalidArgument where hf://… names no model, a cache has no snapshot to take, or a manifest names
// no model that is there or an adapter that would not be applied. A path that leads nowhere comes
// back as it is.
absl::StatusOr<ModelPlace> FindModelPlace(const std::string& path);

}  // namespace continuo::worker
