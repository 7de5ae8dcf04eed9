// SPDX-License-Identifier: Apache-2.0
#pragma once

// The queue between what a program tells a collector of OpenTelemetry and the calls that send it. A
// collector that is slow or gone costs items, never a request.

#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/log.h"

namespace continuo::common {

struct BatchOptions {
  size_t max_queued = 4096;
  size_t max_batch = 512;
  // A batch that is not full is sent after this time.
  absl::Duration max_wait = absl::Seconds(1);
  absl::Duration timeout = absl::Seconds(5);  // The deadline of sending a batch.
  // A batch that the collector could not take now is sent again, after these times, each twice the
  // one before; zero: it is dropped.
  absl::Duration min_backoff = absl::ZeroDuration(), max_backoff = absl::Seconds(30);
};

// How a collector answered.
struct BatchResult {
  bool is_retryable = false;  // it took nothing, and may take it later
  int64_t num_rejected = 0;   // of the batch; a collector may report any number
};

// Queues items and sends them in batches, on its own thread. Thread-safe.
template <typename Item>
class BatchExporter {
 public:
  using SendBatch =
      std::function<BatchResult(grpc::ClientContext* context, const std::vector<Item>& batch)>;

  // `what` names the items in the log: "spans".
  BatchExporter(std::string what, BatchOptions options, SendBatch send)
      : what_(std::move(what)), options_(options), send_(std::move(send)) {
    sender_ = std::thread([this] { Run(); });
  }
  ~BatchExporter() { Stop(); }
  BatchExporter(const BatchExporter&) = delete;
  BatchExporter& operator=(const BatchExporter&) = delete;

  // Never blocks: beyond max_queued the item is dropped and counted.
  void Add(Item item) {
    absl::MutexLock lock(&mutex_);
    if (stopping_ || queue_.size() >= options_.max_queued) {
      num_dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    queue_.push_back(std::move(item));
  }

  // Sends what is queued, for at most a second. Items added later are dropped. Called by one
  // thread.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      if (sending_ != nullptr) sending_->TryCancel();
    }
    if (sender_.joinable()) sender_.join();
  }

  // The number of items that no collector accepted.
  int64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  // The deadline of the last batch, which Stop sends.
  static constexpr absl::Duration kGoodbye = absl::Seconds(1);

  void Run() {
    absl::Duration backoff = absl::ZeroDuration();  // of the batch that waits to be sent again
    std::vector<Item> batch;
    for (;;) {
      const bool last = Wait(backoff);
      Take(last, &batch);
      if (!batch.empty()) {
        const BatchResult result = Send(batch, last);
        const bool again = result.is_retryable && options_.min_backoff > absl::ZeroDuration();
        const auto size = static_cast<int64_t>(batch.size());
        const int64_t rejected =
            result.is_retryable ? size : std::clamp<int64_t>(result.num_rejected, 0, size);
        if (again && !last) {
          Tell(true);
          backoff = std::clamp(2 * backoff, options_.min_backoff, options_.max_backoff);
          continue;
        }
        num_dropped_.fetch_add(rejected, std::memory_order_relaxed);
        Tell(rejected > 0);
        batch.clear();
        backoff = absl::ZeroDuration();
      }
      if (last) return;
    }
  }

  // Waits for a full batch, or where one is to be sent again for its time. Returns whether the
  // exporter stops.
  bool Wait(absl::Duration backoff) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this, backoff]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopping_ || (backoff == absl::ZeroDuration() && queue_.size() >= options_.max_batch);
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), std::max(backoff, options_.max_wait));
    return stopping_;
  }

  // Fills the batch from the queue; with all of it at the end.
  void Take(bool last, std::vector<Item>* batch) {
    absl::MutexLock lock(&mutex_);
    const size_t room = last ? queue_.size() : options_.max_batch - batch->size();
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), room));
    batch->insert(batch->end(), std::make_move_iterator(queue_.begin()),
                  std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
  }

  BatchResult Send(const std::vector<Item>& batch, bool last) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + (last ? kGoodbye : options_.timeout)));
    {
      absl::MutexLock lock(&mutex_);
      sending_ = &context;
      // Only the last batch is sent while stopping.
      if (stopping_ && !last) context.TryCancel();
    }
    const BatchResult result = send_(&context, batch);
    absl::MutexLock lock(&mutex_);
    sending_ = nullptr;
    return result;
  }

  // Logs failures when they begin and when they end.
  void Tell(bool fails) {
    if (failing_ == fails) return;
    failing_ = fails;
    Log(fails ? LogSeverity::kWarning : LogSeverity::kInfo,
        (fails ? "the collector takes no " : "the collector takes ") + what_,
        {{"dropped", num_dropped()}});
  }

  const std::string what_;
  const BatchOptions options_;
  const SendBatch send_;
  std::atomic<int64_t> num_dropped_ = 0;
  bool failing_ = false;  // The state that was logged last; only used by the sending thread.

  absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The call that sends a batch, which Stop cancels.
  grpc::ClientContext* sending_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread sender_;
};

}  // namespace continuo::common
