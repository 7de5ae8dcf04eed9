// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/family.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family_rows.h"

namespace continuo::model {
namespace {

// True if `name` plainly means the family though it is not its architecture: the base model's class
// (LlamaModel), that with a head of scores (LlamaForSequenceClassification), the family's own name
// (Llama), or another spelling (LLaMAForCausalLM).
bool MeansFamily(const std::string& name, const Family& family) {
  constexpr std::string_view kEnd = "ForCausalLM";
  const std::string stem(family.architecture.substr(0, family.architecture.size() - kEnd.size()));
  for (const char* end :
       {"", "Model", "TextModel", "LMHeadModel", "ForCausalLM", "ForSequenceClassification"}) {
    if (absl::EqualsIgnoreCase(name, stem + end)) return true;
  }
  return absl::EqualsIgnoreCase(name, std::string(family.model_type));
}

// The names in "architectures": a list, or one name.
std::vector<std::string> Architectures(const JsonObject& json) {
  const nlohmann::json& value = json.Raw("architectures");
  std::vector<std::string> names;
  if (value.is_string()) names.push_back(value.get<std::string>());
  if (!value.is_array()) return names;
  for (const nlohmann::json& name : value) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

std::span<const Family> Families() {
  static const std::vector<Family>& all = *new std::vector<Family>([] {
    std::vector<Family> rows;
    for (const auto& some : {DenseFamilies(), ExpertFamilies(), StateFamilies()}) {
      rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
  }());
  return all;
}

const Family* FindArchitecture(std::string_view architecture) {
  const std::span<const Family> all = Families();
  const auto it = std::ranges::find(all, architecture, &Family::architecture);
  return it == all.end() ? nullptr : &*it;
}

bool HasTextPart(JsonObject& json) {
  constexpr std::string_view kEnd = "ForConditionalGeneration";
  if (!json.Raw("text_config").is_object()) return false;
  const std::vector<std::string> names = Architectures(json);
  return std::ranges::any_of(names, [&](const std::string& n) { return n.ends_with(kEnd); });
}

bool HasScoreHead(JsonObject& json) {
  constexpr std::string_view kEnd = "ForSequenceClassification";
  const std::vector<std::string> names = Architectures(json);
  return std::ranges::any_of(names, [&](const std::string& n) { return n.ends_with(kEnd); });
}

absl::StatusOr<const Family*> FindFamily(JsonObject& json) {
  const std::vector<std::string> names = Architectures(json);
  const std::string model_type = json.String("model_type", "");
  for (const Family& family : Families()) {
    for (const std::string& name : names) {
      if (name == family.architecture) return &family;
    }
    if (names.empty() && model_type == family.model_type) return &family;
  }
  for (const Family& family : Families()) {
    // A model_type of another family would make the meaning doubtful.
    if (!model_type.empty() && model_type != family.model_type) continue;
    for (const std::string& name : names) {
      if (MeansFamily(name, family)) return &family;
    }
  }
  std::string known;
  for (const Family& family : Families()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.architecture));
  }
  std::string what = absl::StrCat("architecture ", ShowJson(names.empty() ? model_type : names[0]),
                                  " is not known");
  if (names.empty() && model_type.empty()) what = "there is neither architectures nor model_type";
  return absl::UnimplementedError(absl::StrCat("config.json: ", what, "; known are ", known));
}

}  // namespace continuo::model
