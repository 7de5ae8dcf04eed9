// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/gguf/gguf_names.h"

namespace continuo::gguf {

// True for architectures some of whose layers have Mamba-2's state. Their numbers of heads and
// lengths of MLPs differ between layers.
bool HasStateSpace(const Architecture& architecture);

// Fills in the fields of config.json that say what the layers of such a model are, and their sizes.
// `json` has the fields that other keys tell. Unimplemented or InvalidArgument names the key or the
// tensor. The tensors decide what a layer is, since writers fill in the lists by layer in several
// ways.
absl::Status AddStateSpace(const GgufFile& file, const Architecture& architecture,
                           nlohmann::ordered_json& json);

}  // namespace continuo::gguf
