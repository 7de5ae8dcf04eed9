// SPDX-License-Identifier: Apache-2.0
#pragma once

// How shim functions stop the threads of a block that grid_runner.cc runs.
namespace continuo::kernels::cuda {

// Ends the program, because a device would not go on either.
[[noreturn]] void Broken(const char* what);

// Stops the current thread of a block until another one releases those that await `what`.
void AwaitRelease(const void* what);
void ReleaseThoseThatAwait(const void* what);

// Called before the first and after the last thread of each block runs.
void BeginBarriers();
void EndBarriers();

}  // namespace continuo::kernels::cuda
