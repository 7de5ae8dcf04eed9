// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace continuo::cuda {

// Whether a kernel may be started while the one before it ends, on devices that can: true unless
// this says otherwise. Of the whole process, before its first kernel: for benches.
void AllowEarlyGrids(bool allowed);

}  // namespace continuo::cuda
