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

Json IdleValues(std::string_view idle) { return idle.empty() ? Json::array() : Json::parse(idle); }

bool AsksForNothing(std::string_view idle_values, const Json& value) {
  if (value.is_null()) return true;
  const Json idle = IdleValues(idle_values);
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

absl::Status Refuse(std::string_view path, std::string_view idle_values, std::string_view note) {
  std::vector<std::string> idle;
  for (const Json& value : IdleValues(idle_values)) idle.push_back(value.dump());
  return protocol::FieldError(
      path, absl::StrCat("is not supported",
                         idle.empty() ? "" : " other than as " + absl::StrJoin(idle, " or "), "; ",
                         std::string(note)));
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

// The name as tables have it, with the values of a refused member that ask for nothing.
std::string Listed(std::string_view name, Disposition disposition, std::string_view idle_values) {
  std::string listed = absl::StrCat("`", std::string(name), "`");
  if (disposition != Disposition::kRefused || idle_values.empty()) return listed;
  std::vector<std::string> idle;
  for (const Json& value : IdleValues(idle_values)) idle.push_back("`" + value.dump() + "`");
  return absl::StrCat(listed, " (", absl::StrJoin(idle, ", "), ")");
}

// Rows of a table with a cell of names. Rows that differ in their names, or else in their first
// cell alone, are one row.
class Rows {
 public:
  void Add(std::string first, std::string name, std::string rest) {
    const auto at = std::ranges::find_if(
        rows_, [&](const Row& row) { return row.first[0] == first && row.rest == rest; });
    if (at == rows_.end()) {
      rows_.push_back({{std::move(first)}, {std::move(name)}, std::move(rest)});
    } else {
      at->names.push_back(std::move(name));
    }
  }
  std::string Text() const {
    std::vector<Row> joined;
    for (const Row& row : rows_) {
      const auto at = std::ranges::find_if(joined, [&](const Row& other) {
        return row.names == other.names && row.rest == other.rest;
      });
      if (at == joined.end()) {
        joined.push_back(row);
      } else {
        at->first.push_back(row.first[0]);
      }
    }
    std::string text;
    for (const Row& row : joined) {
      const std::string first = absl::StrJoin(row.first, ", ");
      absl::StrAppend(&text, first.empty() ? "" : "| " + first + " ", "| ",
                      absl::StrJoin(row.names, ", "), " | ", row.rest, " |\n");
    }
    return text;
  }

 private:
  struct Row {
    std::vector<std::string> first, names;
    std::string rest;
  };
  std::vector<Row> rows_;
};

std::string MemberRows(std::span<const Member> members, Disposition disposition) {
  Rows rows;
  for (const Member& member : members) {
    if (member.disposition != disposition) continue;
    rows.Add("", Listed(member.name, disposition, member.idle),
             absl::StrCat(std::string(RoutesOf(member)), " | ", ServersOf(member), " | ",
                          std::string(member.note)));
  }
  return rows.Text();
}

constexpr std::string_view kHeadOfHarmless = "Accepted without effect:\n\n";
constexpr std::string_view kHeadOfRefused = "Refused, other than with the values in brackets:\n\n";

}  // namespace

absl::Status CheckMembers(Endpoint endpoint, const Json& body) {
  for (const auto& [name, value] : body.items()) {
    const Member* const member = FindMember(endpoint, name);
    if (member == nullptr) {
      if (value.is_null()) continue;
      return Unknown("", name, PathOf(BitOf(endpoint)), NamesOf(endpoint));
    }
    if (member->disposition == Disposition::kHarmless || AsksForNothing(member->idle, value)) {
      continue;
    }
    if (member->disposition == Disposition::kRefused) {
      return Refuse(member->name, member->idle, member->note);
    }
    if ((member->endpoints & BitOf(endpoint)) == 0) {
      return protocol::FieldError(
          name, absl::StrCat("is a member of ", std::string(PathOf(member->endpoints)), ", not of ",
                             std::string(PathOf(BitOf(endpoint)))));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckObject(const ObjectMembers& object, const Json& json, std::string_view path) {
  for (const auto& [name, value] : json.items()) {
    const auto member = std::ranges::find(object.members, name, &ObjectMember::name);
    if (member == object.members.end()) {
      if (value.is_null()) continue;
      std::vector<std::string_view> known;
      for (const ObjectMember& other : object.members) known.push_back(other.name);
      return Unknown(path, name, path.empty() ? object.name : path, known);
    }
    if (member->disposition != Disposition::kRefused || AsksForNothing(member->idle, value)) {
      continue;
    }
    std::string place(path);
    if (!place.empty()) place.push_back('.');
    return Refuse(place.append(name), member->idle, member->note);
  }
  return absl::OkStatus();
}

std::string MembersTable() {
  constexpr std::string_view kHead = "| member | route | known to | |\n| --- | --- | --- | --- |\n";
  return absl::StrCat("Done:\n\n", std::string(kHead), MemberRows(Members(), Disposition::kDone),
                      "\n", std::string(kHeadOfHarmless), std::string(kHead),
                      MemberRows(Members(), Disposition::kHarmless), "\n",
                      std::string(kHeadOfRefused), std::string(kHead),
                      MemberRows(Members(), Disposition::kRefused),
                      "\nOf `/tokenize` and `/detokenize`:\n\n", std::string(kHead),
                      MemberRows(TextMembers(), Disposition::kDone));
}

std::string ObjectsTable(std::span<const ObjectMembers* const> objects) {
  constexpr std::string_view kHead = "| in | member | |\n| --- | --- | --- |\n";
  const auto rows = [&](Disposition disposition) {
    Rows rows;
    for (const ObjectMembers* const object : objects) {
      for (const ObjectMember& member : object->members) {
        if (member.disposition != disposition) continue;
        rows.Add(std::string(object->name), Listed(member.name, disposition, member.idle),
                 std::string(member.note));
      }
    }
    return rows.Text();
  };
  return absl::StrCat("Done:\n\n", std::string(kHead), rows(Disposition::kDone), "\n",
                      std::string(kHeadOfHarmless), std::string(kHead),
                      rows(Disposition::kHarmless), "\n", std::string(kHeadOfRefused),
                      std::string(kHead), rows(Disposition::kRefused));
}

}  // namespace continuo::gateway::openai
