// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/worker/config.h"

namespace continuo::worker {

// Decides by --task and the model's files whether the worker makes embeddings or scores, and then
// sets `embedding` or `score` and what follows from it for the load. The files are where the paths
// are by now.
// Errors as embedding::ReadSentenceModules; Unimplemented a pooling of a GGUF file that is not
// known; InvalidArgument a flag that goes with answers alone.
absl::Status ApplyTask(WorkerConfig& config);

}  // namespace continuo::worker
