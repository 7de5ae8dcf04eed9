// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kernels/communicator.h"

namespace continuo::kernels::host {

// Collectives among `size` (1, 2, 4 or 8) ranks that are threads of this process, each using the
// communicator of its index. Ranks read each other's tensors in place; nothing is allocated after
// this call. After Abort() every collective returns at once, and leaves its output undefined.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size);

}  // namespace continuo::kernels::host
