// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace continuo::hub {

// Which hub is asked and where its files are kept, as Hugging Face's own programs take it from the
// environment.
struct HubSettings {
  std::string endpoint;  // HF_ENDPOINT, without an ending slash
  // HF_TOKEN, or else the text of HF_TOKEN_PATH, or of the file "token" in HF_HOME; empty: none.
  std::string token;
  std::string cache;     // HF_HUB_CACHE, or else the folder "hub" in HF_HOME
  std::string ca_file;   // REQUESTS_CA_BUNDLE or SSL_CERT_FILE; empty: the system's authorities
  bool offline = false;  // HF_HUB_OFFLINE: ask nobody
};

// Reads the environment by `getenv`. HF_HOME is XDG_CACHE_HOME/huggingface or
// ~/.cache/huggingface where it is not set. `cache` is empty where none of these is set.
HubSettings ReadHubSettings(const std::function<const char*(const char*)>& getenv);

}  // namespace continuo::hub
