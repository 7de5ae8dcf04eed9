// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/adapters/adapters_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

using Kind = AdapterUpdate::Kind;

constexpr char kLoad[] = R"({"lora_name":"poet","lora_path":"all/poet","model":"m"})";

TEST(ParseAdapterUpdateTest, ReadsWhatVllmHas) {
  const auto load = ParseAdapterUpdate(Kind::kLoad, kLoad);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->kind, Kind::kLoad);
  EXPECT_EQ(load->name, "poet");
  EXPECT_EQ(load->path, "all/poet");
  EXPECT_EQ(load->base, "m");
  const auto unload = ParseAdapterUpdate(Kind::kUnload, R"({"lora_name":"poet"})");
  ASSERT_TRUE(unload.ok()) << unload.status();
  EXPECT_EQ(unload->kind, Kind::kUnload);
  EXPECT_EQ(unload->base, "");
}

TEST(ParseAdapterUpdateTest, NamesAndPathsAreBounded) {
  const auto field = [](const std::string& name, const std::string& path) {
    const Json body = {{"lora_name", name}, {"lora_path", path}};
    return protocol::FieldOf(ParseAdapterUpdate(Kind::kLoad, body.dump()).status());
  };
  EXPECT_EQ(field(std::string(256, 'a'), std::string(4096, 'a')), "");
  EXPECT_EQ(field(std::string(257, 'a'), "p"), "lora_name");
  EXPECT_EQ(field("a", std::string(4097, 'a')), "lora_path");
  EXPECT_EQ(field("a", ""), "lora_path");
}

TEST(AdapterUpdateJsonTest, TellsEachWorker) {
  const AdapterUpdate update = {.base = "m", .name = "po\"et"};
  const AdapterOutcome outcome = {
      .base = "m", .workers = {{"w0", "", {}}, {"w1", "", absl::NotFoundError("no \"such\"")}}};
  const Json json = Json::parse(AdapterUpdateJson(update, outcome));
  EXPECT_EQ(json,
            Json({{"lora_name", "po\"et"},
                  {"model", "m"},
                  {"workers",
                   {{{"worker", "w0"}, {"code", "OK"}},
                    {{"worker", "w1"}, {"code", "NOT_FOUND"}, {"message", "no \"such\""}}}}}));
}

TEST(AdapterMembersTest, EachDoesWhatItsRowSays) {
  for (const ObjectMembers* const object : AdapterObjects()) {
    const bool is_load = object == AdapterObjects()[0];
    const Kind kind = is_load ? Kind::kLoad : Kind::kUnload;
    CheckObjects({&object, 1}, {{object, is_load ? kLoad : R"({"lora_name":"poet"})", ""}},
                 [kind](const std::string& body) -> absl::StatusOr<std::string> {
                   const auto update = ParseAdapterUpdate(kind, body);
                   if (!update.ok()) return update.status();
                   return absl::StrCat(update->name, "\n", update->path, "\n", update->base);
                 });
  }
}

TEST(AdapterMembersTest, TheDocumentsHaveTheTable) {
  CheckDocuments("adapters", ObjectsTable(AdapterObjects()));
}

}  // namespace
}  // namespace continuo::gateway::openai
