// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace continuo::worker {

// Lists what this program can load, from the tables that loading itself reads: families with their
// mechanisms and GGUF's names, stored types, formats of weights and of the KV cache, tokenizers'
// files. A JSON object; scripts/models_page.py makes docs/models.md of it.
std::string RegistryJson();

}  // namespace continuo::worker
