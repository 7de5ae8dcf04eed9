// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace continuo {

// The name of this host, which in Kubernetes is the pod's; `fallback` where the system has none.
// Thread-safe.
std::string HostName(std::string fallback);

}  // namespace continuo
