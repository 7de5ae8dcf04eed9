// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/worker_end.h"

#include <gtest/gtest.h>

#include <string_view>

#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

TEST(WorkerEndTest, StatusAndReasonDecideAsTheTableSays) {
  struct Row {
    absl::StatusCode code;
    std::string_view reason;  // "": no ErrorInfo, as of a status that gRPC makes itself
    WorkerEnd end;
  };
  constexpr Row kRows[] = {
      {absl::StatusCode::kOk, "", WorkerEnd::kLost},
      {absl::StatusCode::kCancelled, "", WorkerEnd::kLost},
      {absl::StatusCode::kUnavailable, "", WorkerEnd::kLost},
      {absl::StatusCode::kUnavailable, protocol::kReasonDraining, WorkerEnd::kDrained},
      {absl::StatusCode::kUnavailable, protocol::kReasonNoWorker, WorkerEnd::kDrained},
      {absl::StatusCode::kInternal, "", WorkerEnd::kFault},
      {absl::StatusCode::kInternal, protocol::kReasonPoison, WorkerEnd::kFinal},
      {absl::StatusCode::kUnknown, "", WorkerEnd::kFault},
      {absl::StatusCode::kResourceExhausted, "", WorkerEnd::kOverloaded},
      {absl::StatusCode::kResourceExhausted, protocol::kReasonOverloaded, WorkerEnd::kOverloaded},
      {absl::StatusCode::kResourceExhausted, protocol::kReasonSlowReader, WorkerEnd::kFinal},
      {absl::StatusCode::kInvalidArgument, "", WorkerEnd::kFinal},
      {absl::StatusCode::kFailedPrecondition, protocol::kReasonModelChanged, WorkerEnd::kFinal},
      {absl::StatusCode::kDeadlineExceeded, "", WorkerEnd::kFinal},
      {absl::StatusCode::kAborted, "", WorkerEnd::kFinal},
      {absl::StatusCode::kUnauthenticated, "", WorkerEnd::kFinal},
      {absl::StatusCode::kUnauthenticated, protocol::kReasonPeerToken, WorkerEnd::kDrained},
      {absl::StatusCode::kPermissionDenied, protocol::kReasonPeerName, WorkerEnd::kDrained},
      {absl::StatusCode::kPermissionDenied, protocol::kReasonModelNotAllowed, WorkerEnd::kFinal},
  };
  for (const Row& row : kRows) {
    absl::Status status(row.code, "end");
    if (!row.reason.empty()) status = protocol::WithReason(status, row.reason);
    SCOPED_TRACE(status);
    EXPECT_EQ(ClassifyWorkerEnd(status, /*has_summary=*/false), row.end);
    EXPECT_EQ(ClassifyWorkerEnd(status, /*has_summary=*/true), WorkerEnd::kComplete);
  }
}

}  // namespace
}  // namespace continuo::gateway
