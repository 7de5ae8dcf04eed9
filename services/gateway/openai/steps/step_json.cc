// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/step_json.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/gateway/openai/json/json_text.h"
#include "services/protocol/proto_time.h"

namespace continuo::gateway::openai {
namespace {

// The ids that gateways make (InferenceService::MakeRequestId).
constexpr std::string_view kMadePrefix = "req-";
constexpr size_t kMadeDigits = 32, kShortDigits = 8;

bool IsMade(std::string_view id) {
  if (!id.starts_with(kMadePrefix) || id.size() < kMadePrefix.size() + kMadeDigits) return false;
  const std::string_view digits = id.substr(kMadePrefix.size(), kMadeDigits);
  const std::string_view rest = id.substr(kMadePrefix.size() + kMadeDigits);
  return std::ranges::all_of(digits, [](unsigned char c) { return absl::ascii_isxdigit(c); }) &&
         (rest.empty() || (rest.size() <= 4 && rest.front() == '-' &&
                           std::ranges::all_of(rest.substr(1), [](unsigned char c) {
                             return absl::ascii_isdigit(c);
                           })));
}

// "stop" of FINISH_REASON_STOP; the number of a reason that is not known.
std::string FinishText(v1::FinishReason reason) {
  constexpr std::string_view kPrefix = "FINISH_REASON_";
  const std::string& name = v1::FinishReason_Name(reason);
  if (name.size() < kPrefix.size()) return absl::StrCat(static_cast<int>(reason));
  return absl::AsciiStrToLower(name.substr(kPrefix.size()));
}

}  // namespace

StepIds::StepIds() { CONTINUO_CHECK(RAND_bytes(key_.data(), static_cast<int>(key_.size())) == 1); }

std::string StepIds::Short(std::string_view request_id) const {
  if (IsMade(request_id)) {
    return absl::StrCat(std::string(request_id.substr(kMadePrefix.size(), kShortDigits)),
                        std::string(request_id.substr(kMadePrefix.size() + kMadeDigits)));
  }
  std::string keyed(reinterpret_cast<const char*>(key_.data()), key_.size());
  keyed.append(request_id);
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>(keyed.data()), keyed.size(), digest.data());
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), kShortDigits / 2));
}

std::string StepJson(const v1::Step& step, const StepIds& ids) {
  std::string json = absl::StrCat("{\"number\":", step.number(), ",\"start\":");
  AppendNumber(
      static_cast<double>(absl::ToUnixMicros(protocol::FromProto(step.start_time()))) / 1e6, &json);
  json.append(",\"seconds\":");
  AppendNumber(absl::ToDoubleSeconds(protocol::FromProto(step.duration())), &json);
  absl::StrAppend(&json, ",\"waiting\":", step.waiting_requests(),
                  ",\"kv_blocks_used\":", step.used_kv_blocks(), ",\"sequences\":[");
  bool first = true;
  for (const v1::StepSequence& s : step.sequences()) {
    absl::StrAppend(&json, first ? "" : ",", "{\"id\":\"", ids.Short(s.request_id()), "\"");
    first = false;
    if (s.index() > 0) absl::StrAppend(&json, ",\"index\":", s.index());
    absl::StrAppend(&json, ",\"prompt_tokens\":", s.prompt_tokens(),
                    ",\"cached_tokens\":", s.cached_tokens(), ",\"new_tokens\":", s.new_tokens(),
                    ",\"generated_tokens\":", s.generated_tokens());
    if (s.preempted()) json.append(",\"preempted\":true");
    if (s.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      absl::StrAppend(&json, ",\"finish\":\"", FinishText(s.finish_reason()), "\"");
    }
    json.push_back('}');
  }
  json.append("]}");
  return json;
}

std::string WatchedWorkerJson(const WorkerLoad& load) {
  std::string json = "{\"worker\":";
  AppendString(load.worker, &json);
  json.append(",\"model\":");
  AppendString(load.model, &json);
  absl::StrAppend(&json, ",\"max_running\":", load.max_running_requests,
                  ",\"kv_blocks_total\":", load.total_kv_blocks,
                  ",\"block_size_tokens\":", load.block_size_tokens, "}");
  return json;
}

}  // namespace continuo::gateway::openai
