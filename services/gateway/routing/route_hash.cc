// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/route_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>

namespace continuo::gateway {
namespace {

// Collects the first bytes of the added parts, up to a limit.
class Prefix {
 public:
  void Add(std::string_view part) {
    const size_t room = kPrefixTokens * kBytesPerToken - bytes_.size();
    bytes_.append(part.substr(0, room));
  }
  // Adds a part and a separator, so that parts do not run into each other.
  void AddSeparated(std::string_view part) {
    Add(part);
    Add(std::string_view("\0", 1));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void AddConversation(const v1::Conversation& conversation, Prefix& prefix) {
  prefix.AddSeparated(conversation.template_arguments());
  for (const v1::Tool& tool : conversation.tools()) {
    prefix.AddSeparated(tool.name());
    prefix.AddSeparated(tool.description());
    prefix.AddSeparated(tool.parameters());
  }
  for (const v1::ChatMessage& message : conversation.messages()) {
    prefix.AddSeparated(message.role());
    prefix.AddSeparated(message.content());
    for (const std::string& part : message.content_parts()) prefix.AddSeparated(part);
    if (message.role() == "user") return;
  }
}

void AddIds(const v1::TokenIds& ids, Prefix& prefix) {
  const int size = std::min(ids.ids_size(), kPrefixTokens);
  for (int i = 0; i < size; ++i) {
    const uint32_t id = ids.ids(i);
    const std::array<char, 4> bytes = {static_cast<char>(id), static_cast<char>(id >> 8),
                                       static_cast<char>(id >> 16), static_cast<char>(id >> 24)};
    prefix.Add(std::string_view(bytes.data(), bytes.size()));
  }
}

// Never 0, which stands for no hash.
uint64_t Hash(std::string_view bytes, uint64_t seed) {
  return std::max<uint64_t>(1, XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed));
}

}  // namespace

uint64_t PrefixHash(const v1::GenerateRequest& request, std::string_view tenant) {
  if (request.cache().bypass()) return 0;
  Prefix prefix;
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      prefix.Add(request.text());
      break;
    case v1::GenerateRequest::kTokenIds:
      AddIds(request.token_ids(), prefix);
      break;
    case v1::GenerateRequest::kConversation:
      AddConversation(request.conversation(), prefix);
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return 0;
  }
  if (prefix.bytes().size() < kMinPrefixTokens * kBytesPerToken) return 0;
  return Hash(prefix.bytes(), Hash(request.cache().salt(), Hash(tenant, /*seed=*/1)));
}

uint64_t SessionHash(std::string_view session, std::string_view tenant) {
  return session.empty() ? 0 : Hash(session, Hash(tenant, /*seed=*/2));
}

}  // namespace continuo::gateway
