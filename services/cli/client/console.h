// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

namespace continuo::cli {

// The streams that a command reads and writes.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool interactive = false;   // A person types `in` and sees `out`.
  bool out_terminal = false;  // `out` is a terminal.
  bool err_terminal = false;  // `err` is a terminal.
};

}  // namespace continuo::cli
