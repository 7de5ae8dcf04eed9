// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "services/worker/gguf/gguf_names.h"

namespace continuo::gguf {

// These functions return Hugging Face's names of GGUF's tensors and their parts, by an
// architecture's tables; empty where there is none.

// Names a tensor outside of layers, with its ending: "output_norm.weight".
std::string_view NameOutside(const Architecture& architecture, std::string_view name);
// Names a layer's part without its ending, which stays: "attn_q" of "blk.0.attn_q.weight".
std::string_view NameOfPart(const Architecture& architecture, std::string_view own);
// Names a layer's tensor whose name has no ending in Hugging Face's files: "ssm_dt.bias".
std::string_view NameOfWholePart(const Architecture& architecture, std::string_view own);
// Names a module's part for multi-token prediction that is no layer's: "eh_proj".
std::string_view NameOfMtpPart(std::string_view own);

// True for models whose layers have one part.
bool HasMixers(const Architecture& architecture);

}  // namespace continuo::gguf
