// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/members.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

const Member* FindMember(std::string_view name) {
  static const auto* const by_name = [] {
    auto* const map = new absl::flat_hash_map<std::string_view, const Member*>();
    for (const Member& member : Members()) map->emplace(member.name, &member);
    return map;
  }();
  const auto at = by_name->find(name);
  return at == by_name->end() ? nullptr : at->second;
}

uint8_t BitOf(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
      return kOfChat;
    case Endpoint::kCompletions:
      return kOfCompletions;
    case Endpoint::kTokenize:
      return kOfTokenize;
    case Endpoint::kDetokenize:
      break;
  }
  return kOfDetokenize;
}

std::string_view PathOf(uint8_t endpoints) {
  if ((endpoints & kOfChat) != 0) return "/v1/chat/completions";
  if ((endpoints & kOfCompletions) != 0) return "/v1/completions";
  return (endpoints & kOfTokenize) != 0 ? "/tokenize" : "/detokenize";
}

const Member* FindMember(Endpoint endpoint, std::string_view name) {
  if (endpoint == Endpoint::kChat || endpoint == Endpoint::kCompletions) return FindMember(name);
  const auto at = std::ranges::find(TextMembers(), name, &Member::name);
  return at == TextMembers().end() ? FindMember(name) : &*at;
}

// The names of the endpoint's members.
std::vector<std::string_view> NamesOf(Endpoint endpoint) {
  std::vector<std::string_view> names;
  for (const std::span<const Member> table : {Members(), TextMembers()}) {
    for (const Member& member : table) {
      if ((member.endpoints & BitOf(endpoint)) != 0) names.push_back(member.name);
    }
  }
  return names;
}

Json IdleValues(const Member& member) {
  return member.idle.empty() ? Json::array() : Json::parse(member.idle);
}

bool AsksForNothing(const Member& member, const Json& value) {
  if (value.is_null()) return true;
  const Json idle = IdleValues(member);
  return std::ranges::find(idle, value) != idle.end();
}

// Returns how many letters have to be changed, added or left out to make one of the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// The name that was perhaps meant; empty if there is none.
std::string_view Similar(std::string_view name, std::span<const std::string_view> known) {
  size_t best = name.size() < 6 ? 2 : 3;  // less than this many letters differ
  std::string_view found;
  for (const std::string_view other : known) {
    if (std::max(other.size(), name.size()) - std::min(other.size(), name.size()) >= best) continue;
    if (const size_t distance = Distance(name, other); distance < best) {
      best = distance;
      found = other;
    }
  }
  return found;
}

absl::Status Unknown(std::string_view path, std::string_view name, std::string_view owner,
                     std::span<const std::string_view> known) {
  std::string field(path);
  if (!field.empty()) field.push_back('.');
  std::string message = absl::StrCat("is no member of ", std::string(owner));
  const std::string shown = ShowName(name);
  field.append(shown);
  if (const std::string_view similar = Similar(name, known); shown == name && !similar.empty()) {
    absl::StrAppend(&message, "; \"", std::string(similar), "\" is one");
  }
  return WithClientsWord(protocol::FieldError(field, message),
                         "the body has a member that is not known");
}

absl::Status Refuse(const Member& member) {
  std::vector<std::string> idle;
  for (const Json& value : IdleValues(member)) idle.push_back(value.dump());
  return protocol::FieldError(
      member.name, absl::StrCat("is not supported",
                                idle.empty() ? "" : " other than as " + absl::StrJoin(idle, " or "),
                                "; ", std::string(member.note)));
}

std::string ServersOf(const Member& member) {
  constexpr std::pair<uint8_t, std::string_view> kNames[] = {
      {kOpenAi, "OpenAI"}, {kVllm, "vLLM"},          {kSglang, "SGLang"},
      {kTgi, "TGI"},       {kLlamaCpp, "llama.cpp"}, {kOllama, "Ollama"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames) {
    if ((member.servers & bit) != 0) names.emplace_back(name);
  }
  return names.size() == std::size(kNames) ? "all" : absl::StrJoin(names, ", ");
}

std::string_view RoutesOf(const Member& member) {
  if (member.endpoints == kOfBoth) return "both";
  if (member.endpoints == (kOfTokenize | kOfDetokenize)) return "both";
  if (member.endpoints == kOfTokenize) return "tokenize";
  if (member.endpoints == kOfDetokenize) return "detokenize";
  return member.endpoints == kOfChat ? "chat" : "completions";
}

// Members that have everything but their names in common share a row.
std::string Rows(std::span<const Member> members, Disposition disposition) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;  // the rest, the names
  for (const Member& member : members) {
    if (member.disposition != disposition) continue;
    std::string name = absl::StrCat("`", std::string(member.name), "`");
    if (disposition == Disposition::kRefused && !member.idle.empty()) {
      std::vector<std::string> idle;
      for (const Json& value : IdleValues(member)) idle.push_back("`" + value.dump() + "`");
      absl::StrAppend(&name, " (", absl::StrJoin(idle, ", "), ")");
    }
    std::string rest = absl::StrCat(std::string(RoutesOf(member)), " | ", ServersOf(member), " | ",
                                    std::string(member.note));
    const auto at = std::ranges::find(rows, rest, [](const auto& row) { return row.first; });
    if (at == rows.end()) {
      rows.push_back({std::move(rest), {std::move(name)}});
    } else {
      at->second.push_back(std::move(name));
    }
  }
  std::string text;
  for (const auto& [rest, names] : rows) {
    absl::StrAppend(&text, "| ", absl::StrJoin(names, ", "), " | ", rest, " |\n");
  }
  return text;
}

}  // namespace

absl::Status CheckMembers(Endpoint endpoint, const Json& body) {
  for (const auto& [name, value] : body.items()) {
    const Member* const member = FindMember(endpoint, name);
    if (member == nullptr) {
      if (value.is_null()) continue;
      return Unknown("", name, PathOf(BitOf(endpoint)), NamesOf(endpoint));
    }
    if (member->disposition == Disposition::kHarmless || AsksForNothing(*member, value)) continue;
    if (member->disposition == Disposition::kRefused) return Refuse(*member);
    if ((member->endpoints & BitOf(endpoint)) == 0) {
      return protocol::FieldError(
          name, absl::StrCat("is a member of ", std::string(PathOf(member->endpoints)), ", not of ",
                             std::string(PathOf(BitOf(endpoint)))));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOnly(const Json& object, std::string_view path,
                       std::span<const std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::ranges::find(known, name) != known.end()) continue;
    return Unknown(path, name, path, known);
  }
  return absl::OkStatus();
}

absl::Status CheckBody(const Json& body, std::string_view route,
                       std::span<const std::string_view> known) {
  for (const auto& [name, value] : body.items()) {
    if (value.is_null() || std::ranges::find(known, name) != known.end()) continue;
    return Unknown("", name, route, known);
  }
  return absl::OkStatus();
}

std::string MembersTable() {
  constexpr std::string_view kHead = "| member | route | known to | |\n| --- | --- | --- | --- |\n";
  return absl::StrCat(
      "Done:\n\n", std::string(kHead), Rows(Members(), Disposition::kDone),
      "\nTaken and left alone:\n\n", std::string(kHead), Rows(Members(), Disposition::kHarmless),
      "\nRefused, other than with the values in brackets:\n\n", std::string(kHead),
      Rows(Members(), Disposition::kRefused), "\nOf `/tokenize` and `/detokenize`:\n\n",
      std::string(kHead), Rows(TextMembers(), Disposition::kDone));
}

}  // namespace continuo::gateway::openai
