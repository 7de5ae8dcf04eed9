// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/gguf/gguf_names.h"

namespace continuo::gguf {

// Parts of a configuration that a few architectures alone have.

// True for architectures some of whose layers have Mamba-2's state. Their numbers of heads and
// lengths of MLPs differ between layers.
bool HasStateSpace(const Architecture& architecture);

// Fills in the fields of config.json that say what the layers of such a model are, and their sizes.
// `json` has the fields that other keys tell. Unimplemented or InvalidArgument names the key or the
// tensor. The tensors decide what a layer is, since writers fill in the lists by layer in several
// ways.
absl::Status AddStateSpace(const GgufFile& file, const Architecture& architecture,
                           nlohmann::ordered_json& json);

// True for the architecture whose layers differ in their heads and MLPs: some of its keys have a
// number for each layer.
bool HasLayerShapes(const Architecture& architecture);

// True for keys, below the architecture's name, that AddLayerShapes reads.
bool IsOfLayerShapes(std::string_view key);

// Fills in the fields of config.json that say how the layers of Gemma 4 differ, how they are
// rotated and what their experts are. `json` has layer_types. Unimplemented or InvalidArgument
// names the key or the tensor. Source of the keys: llama.cpp's converter for Gemma.
absl::Status AddLayerShapes(const GgufFile& file, const Architecture& architecture,
                            nlohmann::ordered_json& json);

}  // namespace continuo::gguf
