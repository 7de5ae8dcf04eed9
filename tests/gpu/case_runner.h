// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace continuo {

// Calls that are measured as one figure.
struct Case {
  std::string group, name;
  double bytes = 0, flops = 0;  // of one call
  // Makes the arguments and gives what enqueues a call: one for each copy of what it reads, so
  // that taken in turn they read from memory what in a model comes from there.
  std::function<std::vector<std::function<void()>>()> make;
  // Whether calls may be a CUDA graph: not where they copy from or to the host, nor where they are
  // not the Backend's.
  bool repeats = true;
};

// Prints what is wrong, if anything is, and ends the process: after a failure a device may do
// nothing more for it.
void EndOnFailure(const absl::Status& status);

// A process's cases and what owns their arguments.
class CaseSource {
 public:
  virtual ~CaseSource() = default;
  virtual Backend& backend() = 0;
  // The same ones in the same order in every process.
  virtual std::span<const Case> cases() const = 0;
  // Returns when all that was enqueued is done.
  virtual void Wait() = 0;
  // Frees what the last case's `make` made. Nothing is running.
  virtual void FreeArguments() = 0;
};

// Measures the cases of `only`, a group, or all where that is empty, one after the other, and
// prints each when it is done, to the file `json`, too, if that is not empty: a line of JSON each.
// They run in a process of their own; where one fails, hangs or crashes, the next process goes on
// with the one behind it. `open` is called there and gives null, having said why, where there is no
// device. The result is the exit code: 0 where all cases ended well. Called before anything of CUDA
// is.
int RunCases(const std::function<std::unique_ptr<CaseSource>()>& open, const std::string& only,
             const std::string& json);

}  // namespace continuo
