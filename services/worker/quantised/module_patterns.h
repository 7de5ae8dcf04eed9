// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace re2 {
class RE2;
}

namespace continuo::quantised {

// A list of modules of config.json, such as "lm_head", "re:.*mlp.*" or "Linear". Immutable once
// made, so any thread may ask.
class ModulePatterns {
 public:
  enum class Kind : uint8_t {
    // compressed-tensors: whole names, regular expressions behind "re:" that match a beginning, and
    // classes, of which Linear is every module and Embedding the table of tokens.
    kTargets,
    // transformers: a part of a name between dots ("lm_head", "mlp.gate"), or a regular expression
    // for one ("model.layers.*.self_attn").
    kParts,
  };
  // How a name was matched, the most specific last.
  enum class Match : uint8_t { kNone, kClass, kExpression, kName };

  ModulePatterns() = default;
  // `list` is null or an array of strings. Errors begin with `field`: InvalidArgument for another
  // value, Unimplemented for an expression that RE2 does not know, such as one that looks ahead.
  static absl::StatusOr<ModulePatterns> Make(Kind kind, const std::string& field,
                                             const nlohmann::json& list);

  // `module` is a name of the checkpoint without ".weight".
  Match Find(std::string_view module) const;

 private:
  bool HasPart(std::string_view module) const;

  Kind kind_ = Kind::kTargets;
  absl::flat_hash_set<std::string> names_;
  // The length of the longest of names_, in bytes.
  size_t longest_name_ = 0;
  std::vector<std::shared_ptr<const re2::RE2>> expressions_;
};

}  // namespace continuo::quantised
