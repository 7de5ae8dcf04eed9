// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/lifetime/load_board.h"

namespace continuo::server {

// One stream of WatchLoad: sends the board's reports, as deltas where the watcher takes them; a
// slow reader gets only the newest one. Lives until gRPC is done with it and the board has let go.
class WatchLoadCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public LoadWatcher {
 public:
  // Returns the reactor of a new call. `board` outlives it.
  static WatchLoadCall* Start(const grpc::ByteBuffer& request, LoadBoard* board);

  void Send(const v1::WatchLoadResponse& response) override;
  void Close() override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit WatchLoadCall(LoadBoard* board) : board_(board) {}
  void Write(const v1::WatchLoadResponse& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status);

  LoadBoard* const board_;
  std::shared_ptr<WatchLoadCall> self_;  // until OnDone
  bool sends_deltas_ = false;            // set before the board knows the call
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::WatchLoadResponse> next_ ABSL_GUARDED_BY(mutex_);
  // The last response that was no delta, if deltas may follow.
  std::optional<v1::WatchLoadResponse> full_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
