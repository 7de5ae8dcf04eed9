// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/server/runtime/adapter_loader.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// The number of adapters that a worker serves at most: each report of its load names all of them.
inline constexpr size_t kMostServedAdapters = 256;

// The LoRA adapters that a worker serves as models of their own, by name: those of its start, which
// stay, and with a loader those that lie in a folder or were loaded by name. The latter are in
// memory or not. A request for one that is not waits until it is read; where there is no room, the
// adapter that nobody holds and that was used longest ago leaves the memory and is still served. A
// thread of its own reads files, one adapter at a time. Thread-safe; callbacks run without a lock.
class ServedAdapters {
 public:
  using Adapter = std::shared_ptr<const ServedModel>;
  struct Offer {
    Adapter model;  // describes it; cannot run
    bool in_memory = false;
  };
  struct Options {
    std::string base;                         // name of the model that they adapt
    std::function<void()> on_change = [] {};  // All() has changed; from any thread
    // An adapter of the folder is not served, or not any more.
    std::function<void(const std::string& name, const absl::Status& why)> on_refused =
        [](const std::string&, const absl::Status&) {};
    absl::Duration scan_interval = absl::Seconds(10);
    // A load waits so long from its arrival on, behind others too, for an adapter in memory that
    // nobody holds. Those who join a wait wait no longer than its first.
    absl::Duration room_wait = absl::Seconds(1);
  };

  // Without a loader nothing changes, and there is no thread.
  ServedAdapters(std::vector<ServedModel> at_start, std::unique_ptr<AdapterLoader> loader,
                 Options options);
  ~ServedAdapters() { Stop(); }

  // Describes the adapter for calls that do not run it. Null where there is none of that name.
  Adapter Find(std::string_view name) const;
  // Sorted by name.
  std::vector<Offer> All() const;

  // The requests that wait for an adapter.
  size_t num_waiting() const;

  // The result of Acquire: the adapter where it is in memory. Where neither is set, `done` is or
  // was called instead.
  struct Acquired {
    Adapter adapter;
    bool is_unknown = false;  // there is none of that name
  };
  using Done = std::function<void(absl::StatusOr<Adapter>)>;
  // Keeps the adapter in memory for as long as the caller has it or the lease in it. `done` is
  // called once, on another thread or by GiveUp(waiter). Its errors: RESOURCE_EXHAUSTED, reason
  // OVERLOADED: there is no room, or waiting calls have more than kMaxWaitingBytes with the `bytes`
  // of this one. UNAVAILABLE with a reason: it cannot be read here, and is not served any more, or
  // the worker ends. NOT_FOUND: it was unloaded meanwhile.
  static constexpr size_t kMaxWaitingBytes = 64 << 20;
  Acquired Acquire(std::string_view name, uint64_t waiter, size_t bytes, Done done);
  // The same without a wait: neither is set where the adapter has to be read first.
  Acquired TryAcquire(std::string_view name);
  // Ends the wait of a caller of Acquire, if it waits.
  void GiveUp(uint64_t waiter, const absl::Status& why);

  // Serves the adapter of a folder by a name and reads it into memory. `done` is called once, from
  // this call or another thread, with the errors that WorkerService.LoadAdapter tells.
  void Load(const std::string& name, const std::string& path,
            std::function<void(absl::StatusOr<Offer>)> done);
  // From now on there is none of that name, until it is loaded again. Callers that have it keep it.
  // Errors are those of WorkerService.UnloadAdapter.
  absl::Status Unload(std::string_view name);

  // Ends the thread, and all waits. Afterwards nothing is read. May be called again, by one thread
  // at a time.
  void Stop();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Waiter {
    uint64_t id = 0;
    size_t bytes = 0;
    Done done;
  };
  struct Entry {
    uint64_t number = 0;  // unlike that of an earlier entry of the name
    Adapter description;
    Adapter loaded;     // null: not in memory
    std::string path;   // empty: of the start
    std::string stamp;  // empty: not of a scan
    uint64_t last_use = 0;
    std::vector<Waiter> waiters;
    Time wanted_since;  // when the first of them came
    bool at_start() const { return path.empty(); }
  };
  using Entries = std::map<std::string, Entry, std::less<>>;
  struct Call {
    std::string name, path;
    Time since;
    std::function<void(absl::StatusOr<Offer>)> done;
  };

  void Run();
  // The thread's parts. The first answers a call of Load.
  absl::StatusOr<Offer> LoadNow(const std::string& name, const std::string& path, Time since);
  // Reads the adapter into memory, unless it is there, and tells the waiters; one that cannot be
  // read is served no more. Only for a call of Load, with its time, it does so without waiters.
  absl::Status Read(const std::string& name, std::optional<Time> called);
  // For a load that came at `since`.
  absl::Status MakeRoom(Time since);
  // Takes the least recently used adapter out of memory that may go. Null where none may.
  Adapter Evict();
  void Scan();
  // Serves the next of found_.
  void OfferFound();
  void Refuse(const FoundAdapter& found, const absl::Status& why);

  // Require mutex_.
  Entry& AddEntry(const std::string& name, Entry entry);
  std::vector<Waiter> TakeWaiters(Entry& entry);
  bool HasName(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  static void Tell(std::vector<Waiter> waiters, const absl::StatusOr<Adapter>& result);

  const std::unique_ptr<AdapterLoader> loader_;  // used by the thread alone
  const Options options_;

  // Of the thread alone.
  std::deque<FoundAdapter> found_;              // still to be described
  std::map<std::string, std::string> refused_;  // stamps of folders that are not served, by name
  std::set<std::string> without_place_;         // folders that are one too many
  absl::Status scan_status_;                    // of the last scan
  // One was evicted, and there was no room since then: a step may still read it.
  bool is_leaving_ = false;

  // From the standard library, because Abseil's waits with a timeout follow the wall clock when it
  // is set.
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Entries entries_;
  std::set<std::string, std::less<>> unloaded_;  // names that scans leave alone
  std::deque<Call> calls_;
  std::deque<std::string> wanted_;  // names of entries with waiters
  size_t waiting_bytes_ = 0, num_waiting_ = 0;
  uint64_t next_number_ = 1, next_use_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace continuo::server
