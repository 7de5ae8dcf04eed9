// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/testing/temp_folder.h"

namespace continuo::hub {
namespace {

HubSettings SettingsOf(const std::map<std::string, std::string>& environment) {
  return ReadHubSettings([&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(HubSettingsTest, TheCacheIsWhereHuggingFaceHasIt) {
  EXPECT_EQ(SettingsOf({{"HOME", "/home/me"}}).cache, "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(SettingsOf({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/c"}}).cache,
            "/c/huggingface/hub");
  EXPECT_EQ(SettingsOf({{"HOME", "/home/me"}, {"HF_HOME", "/h"}}).cache, "/h/hub");
  EXPECT_EQ(SettingsOf({{"HF_HOME", "/h"}, {"HF_HUB_CACHE", "/x"}}).cache, "/x");
  EXPECT_EQ(SettingsOf({}).cache, "");
}

TEST(HubSettingsTest, TheHubIsHuggingFacesUnlessAnotherIsNamed) {
  EXPECT_EQ(SettingsOf({}).endpoint, "https://huggingface.co");
  EXPECT_EQ(SettingsOf({{"HF_ENDPOINT", "http://mirror:8080//"}}).endpoint, "http://mirror:8080");
  EXPECT_FALSE(SettingsOf({{"HF_HUB_OFFLINE", "0"}}).offline);
  EXPECT_TRUE(SettingsOf({{"HF_HUB_OFFLINE", "1"}}).offline);
  EXPECT_TRUE(SettingsOf({{"HF_HUB_OFFLINE", "true"}}).offline);
}

TEST(HubSettingsTest, TheTokenIsThatOfTheEnvironmentOrOfAFile) {
  const testing::TempFolder home;
  std::ofstream(home.path() / "token") << "of-a-login\n";
  const std::string path = home.path().string();
  EXPECT_EQ(SettingsOf({{"HF_TOKEN", " mine\n"}, {"HF_HOME", path}}).token, "mine");
  EXPECT_EQ(SettingsOf({{"HF_HOME", path}}).token, "of-a-login");
  EXPECT_EQ(SettingsOf({{"HF_HOME", path}, {"HF_TOKEN_PATH", path + "/none"}}).token, "");
  EXPECT_EQ(SettingsOf({{"HF_TOKEN_PATH", path + "/token"}}).token, "of-a-login");
  EXPECT_EQ(SettingsOf({}).token, "");
}

}  // namespace
}  // namespace continuo::hub
