// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/adapters/adapters_json.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/json_text.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway::openai {
namespace {

using enum Disposition;

// The longest path, in bytes.
constexpr size_t kMaxPathBytes = 4096;

constexpr std::string_view kName = "the name by which requests ask for the adapter";
constexpr std::string_view kModel =
    "the model that it adapts; may be left out where one model is served, or the adapter is known";

constexpr ObjectMember kLoadMembers[] = {
    {"lora_name", kDone, kName, ""},
    {"lora_path", kDone, "its folder: in the workers' --lora_root, or absolute and below that", ""},
    {"model", kDone, kModel, ""},
    {"load_inplace", kRefused, "unload the adapter of that name before", "[false]"},
    {"is_3d_lora_weight", kRefused, "adapters of experts are not supported", "[false]"},
};
constexpr ObjectMember kUnloadMembers[] = {
    {"lora_name", kDone, kName, ""},
    {"model", kDone, kModel, ""},
    {"lora_int_id", kRefused, "adapters go by their names", ""},
};
const ObjectMembers kLoad = {"/v1/load_lora_adapter", kLoadMembers};
const ObjectMembers kUnload = {"/v1/unload_lora_adapter", kUnloadMembers};

absl::Status ReadName(const Json& body, const char* member, bool is_needed, size_t max_bytes,
                      std::string* name) {
  std::optional<std::string> value;
  RETURN_IF_ERROR(Read(body, member, &value));
  if (!value.has_value()) {
    return is_needed ? protocol::FieldError(member, "is needed") : absl::OkStatus();
  }
  if (value->empty() || value->size() > max_bytes) {
    return protocol::FieldError(member, absl::StrCat("must have 1 to ", max_bytes, " bytes"));
  }
  *name = *std::move(value);
  return absl::OkStatus();
}

}  // namespace

std::span<const ObjectMembers* const> AdapterObjects() {
  static constexpr const ObjectMembers* kAll[] = {&kLoad, &kUnload};
  return kAll;
}

absl::StatusOr<AdapterUpdate> ParseAdapterUpdate(AdapterUpdate::Kind kind, std::string_view text) {
  const bool is_load = kind == AdapterUpdate::Kind::kLoad;
  ASSIGN_OR_RETURN(const Json body, ParseObject(text));
  RETURN_IF_ERROR(CheckObject(is_load ? kLoad : kUnload, body, ""));
  AdapterUpdate update{.kind = kind};
  constexpr size_t kMaxName = protocol::kMaxModelNameBytes;
  RETURN_IF_ERROR(ReadName(body, "lora_name", /*is_needed=*/true, kMaxName, &update.name));
  RETURN_IF_ERROR(ReadName(body, "model", /*is_needed=*/false, kMaxName, &update.base));
  if (is_load) {
    RETURN_IF_ERROR(ReadName(body, "lora_path", /*is_needed=*/true, kMaxPathBytes, &update.path));
  }
  return update;
}

std::string WorkersMember(const AdapterOutcome& outcome) {
  std::string json = "\"workers\":[";
  for (const WorkerOutcome& worker : outcome.workers) {
    if (json.back() == '}') json += ',';
    json += "{\"worker\":";
    AppendString(worker.worker, &json);
    json += ",\"code\":";
    AppendString(protocol::StatusName(worker.status.code()), &json);
    if (!worker.status.ok()) {
      const absl::string_view message = worker.status.message();
      json += ",\"message\":";
      AppendString({message.data(), message.size()}, &json);
    }
    json += '}';
  }
  return json + "]";
}

std::string AdapterUpdateJson(const AdapterUpdate& update, const AdapterOutcome& outcome) {
  std::string json = "{\"lora_name\":";
  AppendString(update.name, &json);
  json += ",\"model\":";
  AppendString(outcome.base, &json);
  return absl::StrCat(json, ",", WorkersMember(outcome), "}");
}

}  // namespace continuo::gateway::openai
