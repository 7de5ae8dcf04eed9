// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/lifetime/load_board.h"

namespace continuo::server {

// One stream of load reports: sends what the board tells, and a slow reader gets only the newest
// one. Lives until gRPC is done with it and the board has let go.
class LoadStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public LoadWatcher {
 public:
  // Writes a report as the bytes of a message, which are replaced. It is called by one thread at a
  // time, once for each report that is sent.
  using Encoder = std::function<void(const v1::WatchLoadResponse&, grpc::ByteBuffer*)>;

  // Returns the reactor of a new call, which ends at once where `pace` is an error. `board`
  // outlives it.
  static LoadStream* Start(const absl::StatusOr<WatchPace>& pace, Encoder encode, LoadBoard* board);

  void Send(const v1::WatchLoadResponse& response) override;
  void Close() override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  LoadStream(Encoder encode, LoadBoard* board) : board_(board), encode_(std::move(encode)) {}
  void Write(const v1::WatchLoadResponse& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status);

  LoadBoard* const board_;
  std::shared_ptr<LoadStream> self_;  // until OnDone
  absl::Mutex mutex_;
  const Encoder encode_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::WatchLoadResponse> next_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
};

// A time between two reports as it was asked for: `otherwise` where that is unset, and never below
// a millisecond, since a loop without a pause would be a request to burn a core. INVALID_ARGUMENT
// names `field` where it is negative or too long.
absl::StatusOr<absl::Duration> ReadInterval(std::string_view field, bool is_set,
                                            const google::protobuf::Duration& value,
                                            absl::Duration otherwise);

}  // namespace continuo::server
