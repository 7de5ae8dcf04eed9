// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"

namespace continuo {

// Functions that each enqueue a call, one for each copy of its inputs. Taken in turn they read from
// memory, as a model does.
using Calls = std::vector<std::function<void()>>;

// Calls that are measured as one figure.
struct Case {
  std::string group, name;
  double bytes = 0, flops = 0;  // of one call
  // Makes the arguments and the calls.
  std::function<Calls()> make;
  // The calls can be captured as a CUDA graph: they do not copy from or to the host, allocate or
  // wait.
  bool is_capturable = true;
  // Names of cases of the group `ceilings` that are measured in turn with it: those with bytes
  // alone bound its bytes, those with operations its operations.
  std::vector<std::string> ceilings;
  // Another way to the same result, measured in turn, too.
  std::string rival;
  std::function<Calls()> make_rival;
};
inline constexpr char kCeilings[] = "ceilings";  // their group

// Prints an error, if there is one, and ends the process: after a failure a device may do nothing
// more for it.
void EndOnFailure(const absl::Status& status);

// The cases of a process, and the owner of their arguments.
class CaseSource {
 public:
  virtual ~CaseSource() = default;
  virtual kernels::Device& device() = 0;
  virtual std::string device_name() const = 0;  // the device's own name
  // These are the same in the same order in every process.
  virtual std::span<const Case> cases() const = 0;
  // Returns when everything enqueued is done.
  virtual void Wait() = 0;
  // Keeps the arguments made so far from FreeArguments.
  virtual void KeepArguments() = 0;
  // Frees the arguments made since. Nothing is running.
  virtual void FreeArguments() = 0;
};

struct RunOptions {
  std::string only;     // a group; empty: all
  std::string json;     // file; empty: none
  std::string command;  // written to the file
};

// Measures cases one after the other, each in at least 7 rounds in turn with its ceilings and its
// rival. Each result is printed when it is done, and written to the file as a line of JSON. A
// failed case has its name, its group and "failed"; "failed" stands alone where others were not
// reached. Rounds in which a ceiling moved by more than 5 % are thrown away and replaced, up to 21
// rounds in all.
//
// Cases run in a process of their own; where one fails, hangs or crashes, the next process goes on
// with the case behind it. `open` is called there and returns null, having said why, where there is
// no device. Returns the exit code: 0 if all cases ended well. Call it before any CUDA call.
int RunCases(const std::function<std::unique_ptr<CaseSource>()>& open, const RunOptions& options);

}  // namespace continuo
