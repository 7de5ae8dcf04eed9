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

// What enqueues a call, one for each copy of what it reads, so that taken in turn they read from
// memory what in a model comes from there.
using Calls = std::vector<std::function<void()>>;

// Calls that are measured as one figure.
struct Case {
  std::string group, name;
  double bytes = 0, flops = 0;  // of one call
  // Makes the arguments and the calls.
  std::function<Calls()> make;
  // Whether calls may be a CUDA graph: not where they copy from or to the host, allocate or wait.
  bool repeats = true;
  // Names of cases of the group `ceilings` that are measured in turn with it: what has bytes alone
  // for its bytes, what has operations for its operations.
  std::vector<std::string> ceilings;
  // Another way to the same end, measured in turn, too.
  std::string rival;
  std::function<Calls()> make_rival;
};
inline constexpr char kCeilings[] = "ceilings";  // their group

// Prints what is wrong, if anything is, and ends the process: after a failure a device may do
// nothing more for it.
void EndOnFailure(const absl::Status& status);

// A process's cases and what owns their arguments.
class CaseSource {
 public:
  virtual ~CaseSource() = default;
  virtual kernels::Backend& backend() = 0;
  virtual std::string device() const = 0;  // as it calls itself
  // The same ones in the same order in every process.
  virtual std::span<const Case> cases() const = 0;
  // Returns when all that was enqueued is done.
  virtual void Wait() = 0;
  // Keeps what `make`s have made so far from FreeArguments.
  virtual void KeepArguments() = 0;
  // Frees what was made since. Nothing is running.
  virtual void FreeArguments() = 0;
};

struct RunOptions {
  std::string only;     // a group; empty: all
  std::string json;     // file; empty: none
  std::string command;  // told there
};

// Measures cases one after the other, each in at least 7 rounds in turn with its ceilings and its
// rival, and prints each when it is done, to the file, too, a line of JSON each; of one that fails
// that is its name, its group and "failed", which stands alone where others were not reached.
// Rounds in which a ceiling moved by more than 5 % are thrown away, and others take their place, up
// to 21 in all.
//
// Cases run in a process of their own; where one fails, hangs or crashes, the next process goes on
// with the one behind it. `open` is called there and gives null, having said why, where there is no
// device. The result is the exit code: 0 where all cases ended well. Called before anything of CUDA
// is.
int RunCases(const std::function<std::unique_ptr<CaseSource>()>& open, const RunOptions& options);

}  // namespace continuo
