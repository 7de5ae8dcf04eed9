// SPDX-License-Identifier: Apache-2.0
#pragma once

// CONTINUO_CHECK(condition) ends the process with file, line and text if an invariant of the
// program itself is broken. It is never used for errors that a client, a file or the network can
// cause: those are an absl::Status. It is on in every build type. (Abseil 20220623 has no public
// CHECK.)

namespace continuo {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace continuo

#define CONTINUO_CHECK(condition) \
  (static_cast<bool>(condition) ? (void)0 : ::continuo::CheckFailed(__FILE__, __LINE__, #condition))
