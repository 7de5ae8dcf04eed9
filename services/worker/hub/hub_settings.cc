// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_settings.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace continuo::hub {
namespace {

constexpr char kEndpoint[] = "https://huggingface.co";
constexpr size_t kMaxToken = 4096;

std::string ReadToken(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxToken, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  absl::StripAsciiWhitespace(&text);
  return text;
}

bool IsTrue(std::string text) {
  absl::AsciiStrToUpper(&text);
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

}  // namespace

HubSettings ReadHubSettings(const std::function<const char*(const char*)>& getenv) {
  const auto value = [&getenv](const char* name) {
    const char* const text = getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  std::string home = value("HF_HOME");
  if (home.empty()) {
    std::string cache = value("XDG_CACHE_HOME");
    if (cache.empty() && !value("HOME").empty()) cache = value("HOME") + "/.cache";
    if (!cache.empty()) home = cache + "/huggingface";
  }
  HubSettings settings = {.endpoint = value("HF_ENDPOINT"),
                          .token = value("HF_TOKEN"),
                          .cache = value("HF_HUB_CACHE"),
                          .ca_file = value("REQUESTS_CA_BUNDLE"),
                          .offline = IsTrue(value("HF_HUB_OFFLINE"))};
  if (settings.endpoint.empty()) settings.endpoint = kEndpoint;
  while (absl::EndsWith(settings.endpoint, "/")) settings.endpoint.pop_back();
  if (settings.cache.empty() && !home.empty()) settings.cache = home + "/hub";
  if (settings.ca_file.empty()) settings.ca_file = value("SSL_CERT_FILE");
  absl::StripAsciiWhitespace(&settings.token);
  if (settings.token.empty()) {
    const std::string path = value("HF_TOKEN_PATH");
    if (!path.empty()) {
      settings.token = ReadToken(path);
    } else if (!home.empty()) {
      settings.token = ReadToken(home + "/token");
    }
  }
  return settings;
}

}  // namespace continuo::hub
