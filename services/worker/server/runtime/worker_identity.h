// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

namespace continuo::server {

// The names by which a worker and its model are known, also before that is loaded. Immutable.
struct WorkerIdentity {
  std::string worker;       // name of this worker, for people and metrics
  std::string incarnation;  // of this process; another one after a restart
  std::string model_name;
  std::string model_path;               // of the folder or file that is served, absolute
  std::set<std::string> adapter_names;  // of the LoRA adapters that it will serve
};

}  // namespace continuo::server
