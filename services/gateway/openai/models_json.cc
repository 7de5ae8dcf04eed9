// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/models_json.h"

#include <utility>

#include "absl/time/time.h"
#include "services/gateway/openai/answer/answer.h"

namespace continuo::gateway::openai {
namespace {

OrderedJson OpenAiObject(const v1::Model& model, int64_t created) {
  OrderedJson object = {
      {"id", model.name()}, {"object", "model"}, {"created", created}, {"owned_by", "continuo"}};
  if (model.undescribed()) {
    object["max_model_len"] = nullptr;
    object["undescribed"] = true;
  } else {
    object["max_model_len"] = model.max_context_tokens();
  }
  if (!model.parent().empty()) object["parent"] = model.parent();
  return object;
}

OrderedJson AnthropicObject(const v1::Model& model, int64_t created) {
  OrderedJson object = {
      {"type", "model"},
      {"id", model.name()},
      {"display_name", model.name()},
      {"created_at",
       absl::FormatTime(absl::RFC3339_sec, absl::FromUnixSeconds(created), absl::UTCTimeZone())}};
  if (!model.undescribed()) {
    object["max_input_tokens"] = model.max_context_tokens();
    object["max_tokens"] = model.max_context_tokens();
  }
  return object;
}

OrderedJson ObjectOf(ModelsForm form, const v1::Model& model, int64_t created) {
  return form == ModelsForm::kOpenAi ? OpenAiObject(model, created)
                                     : AnthropicObject(model, created);
}

}  // namespace

std::string ModelsJson(ModelsForm form, const std::vector<v1::Model>& models, int64_t created) {
  OrderedJson data = OrderedJson::array();
  for (const v1::Model& model : models) data.push_back(ObjectOf(form, model, created));
  if (form == ModelsForm::kOpenAi) return Dump({{"object", "list"}, {"data", std::move(data)}});
  OrderedJson list = {{"has_more", false}, {"first_id", nullptr}, {"last_id", nullptr}};
  if (!models.empty()) {
    list["first_id"] = models.front().name();
    list["last_id"] = models.back().name();
  }
  list["data"] = std::move(data);
  return Dump(list);
}

std::string ModelJson(ModelsForm form, const v1::Model& model, int64_t created) {
  return Dump(ObjectOf(form, model, created));
}

}  // namespace continuo::gateway::openai
