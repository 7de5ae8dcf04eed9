// SPDX-License-Identifier: Apache-2.0
#pragma once

// RETURN_IF_ERROR(status) and ASSIGN_OR_RETURN(lhs, status_or): early return of an absl::Status.
// (Abseil 20220623 has neither.)

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                                             \
  do {                                                                          \
    if (::absl::Status continuo_status = (expression); !continuo_status.ok()) { \
      return continuo_status;                                                   \
    }                                                                           \
  } while (false)

#define CONTINUO_CONCAT_INNER(a, b) a##b
#define CONTINUO_CONCAT(a, b) CONTINUO_CONCAT_INNER(a, b)

#define ASSIGN_OR_RETURN(lhs, expression) \
  CONTINUO_ASSIGN_OR_RETURN(CONTINUO_CONCAT(continuo_or_, __LINE__), lhs, expression)
#define CONTINUO_ASSIGN_OR_RETURN(tmp, lhs, expression) \
  auto tmp = (expression);                              \
  if (!tmp.ok()) return std::move(tmp).status();        \
  lhs = std::move(tmp).value()
