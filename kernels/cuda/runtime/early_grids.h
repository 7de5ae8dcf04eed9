// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace continuo::kernels::cuda {

// Whether a kernel may be started while the one before it ends, on devices that can: true unless
// this says otherwise. Of the whole process; not while another thread launches, unless it says what
// was so before.
void AllowEarlyGrids(bool allowed);

}  // namespace continuo::kernels::cuda
