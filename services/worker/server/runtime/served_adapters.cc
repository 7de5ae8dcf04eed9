// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/runtime/served_adapters.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/worker/server/lifetime/lifecycle.h"

namespace continuo::server {
namespace {

// Calls of Load that wait for the thread.
constexpr size_t kMostCalls = 1024;
// Folders that a scan looks at.
constexpr size_t kMostFolders = 4096;
// The thread looks this often whether an adapter that was held no longer is.
constexpr std::chrono::milliseconds kRoomPoll(5);

absl::Status NoneOfThatName(std::string_view name) {
  return absl::NotFoundError(absl::StrCat("there is no adapter \"", std::string(name), "\""));
}

absl::Status CheckName(const std::string& name) {
  if (name.empty() || name.size() > protocol::kMaxModelNameBytes || !IsUtf8(name)) {
    return protocol::FieldError(
        "name", absl::StrCat("must be UTF-8 of 1 to ", protocol::kMaxModelNameBytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status NoPlace() {
  return absl::ResourceExhaustedError(
      absl::StrCat(kMostServedAdapters, " adapters are served, the most of one worker"));
}

// What a request for an adapter ends with where that cannot be read: another worker may have it.
absl::Status WaiterError(const std::string& name, const absl::Status& status) {
  const std::string message = absl::StrCat("adapter \"", name, "\": ", status.message());
  if (absl::IsResourceExhausted(status)) return protocol::OverloadedError(message);
  return protocol::WithReason(absl::UnavailableError(message), protocol::kReasonNoWorker);
}

ServedAdapters::Adapter DescriptionOf(ServedModel model) {
  model.adapter = model::kNoAdapter;
  model.adapter_lease = nullptr;
  return std::make_shared<const ServedModel>(std::move(model));
}

}  // namespace

ServedAdapters::ServedAdapters(std::vector<ServedModel> at_start,
                               std::unique_ptr<AdapterLoader> loader, Options options)
    : loader_(std::move(loader)), options_(std::move(options)) {
  for (ServedModel& model : at_start) {
    const std::string name = model.name;
    AddEntry(name, {.description = DescriptionOf(model),
                    .loaded = std::make_shared<const ServedModel>(std::move(model))});
  }
  if (loader_ != nullptr) thread_ = std::thread([this] { Run(); });
}

ServedAdapters::Entry& ServedAdapters::AddEntry(const std::string& name, Entry entry) {
  entry.number = next_number_++;
  entry.last_use = next_use_++;
  return entries_.insert_or_assign(name, std::move(entry)).first->second;
}

std::vector<ServedAdapters::Waiter> ServedAdapters::TakeWaiters(Entry& entry) {
  for (const Waiter& waiter : entry.waiters) waiting_bytes_ -= waiter.bytes;
  num_waiting_ -= entry.waiters.size();
  return std::exchange(entry.waiters, {});
}

void ServedAdapters::Tell(std::vector<Waiter> waiters, const absl::StatusOr<Adapter>& result) {
  for (const Waiter& waiter : waiters) waiter.done(result);
}

ServedAdapters::Adapter ServedAdapters::Find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : at->second.description;
}

std::vector<ServedAdapters::Offer> ServedAdapters::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<Offer> all;
  all.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) {
    all.push_back({entry.description, entry.loaded != nullptr});
  }
  return all;
}

size_t ServedAdapters::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return num_waiting_;
}

ServedAdapters::Acquired ServedAdapters::TryAcquire(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(name);
  if (at == entries_.end()) return {.is_unknown = true};
  at->second.last_use = next_use_++;
  return {.adapter = at->second.loaded};
}

ServedAdapters::Acquired ServedAdapters::Acquire(std::string_view name, uint64_t waiter,
                                                 size_t bytes, Done done) {
  absl::Status failure;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(name);
    if (at == entries_.end()) return {.is_unknown = true};
    Entry& entry = at->second;
    entry.last_use = next_use_++;
    if (entry.loaded != nullptr) return {.adapter = entry.loaded};
    if (stopping_) {
      failure = DrainingError();
    } else if (bytes > 0 && waiting_bytes_ + bytes > kMaxWaitingBytes) {
      failure = protocol::OverloadedError(
          absl::StrCat("over ", kMaxWaitingBytes, " bytes of requests wait for adapters"));
    } else {
      if (entry.waiters.empty()) {
        wanted_.push_back(at->first);
        entry.wanted_since = std::chrono::steady_clock::now();
      }
      entry.waiters.push_back({waiter, bytes, std::move(done)});
      waiting_bytes_ += bytes;
      ++num_waiting_;
    }
  }
  if (!failure.ok()) {
    done(failure);
  } else {
    changed_.notify_all();
  }
  return {};
}

void ServedAdapters::GiveUp(uint64_t waiter, const absl::Status& why) {
  std::optional<Waiter> found;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, entry] : entries_) {
      const auto at = std::ranges::find(entry.waiters, waiter, &Waiter::id);
      if (at == entry.waiters.end()) continue;
      waiting_bytes_ -= at->bytes;
      --num_waiting_;
      found = std::move(*at);
      entry.waiters.erase(at);
      break;
    }
  }
  if (found.has_value()) found->done(why);
}

void ServedAdapters::Load(const std::string& name, const std::string& path,
                          std::function<void(absl::StatusOr<Offer>)> done) {
  absl::Status failure = CheckName(name);
  if (failure.ok() && path.empty()) failure = protocol::FieldError("path", "is needed");
  if (failure.ok() && name == options_.base) {
    failure = absl::AlreadyExistsError(absl::StrCat("\"", name, "\" is the name of the model"));
  }
  if (failure.ok() && loader_ == nullptr) {
    failure = absl::FailedPreconditionError(
        "the worker was started without --lora_root, so it loads no adapters while it serves");
  }
  if (failure.ok()) {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      failure = DrainingError();
    } else if (calls_.size() >= kMostCalls) {
      failure = protocol::OverloadedError(absl::StrCat(kMostCalls, " adapters wait to be loaded"));
    } else {
      calls_.push_back({name, path, std::chrono::steady_clock::now(), std::move(done)});
    }
  }
  if (!failure.ok()) {
    done(failure);
  } else {
    changed_.notify_all();
  }
}

absl::Status ServedAdapters::Unload(std::string_view name) {
  Adapter freed;
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(name);
    if (at == entries_.end()) return NoneOfThatName(name);
    if (at->second.at_start()) {
      return absl::FailedPreconditionError(
          absl::StrCat("adapter \"", std::string(name), "\" is one of --lora_adapter, which stay"));
    }
    unloaded_.insert(at->first);
    waiters = TakeWaiters(at->second);
    freed = std::move(at->second.loaded);
    entries_.erase(at);
  }
  Tell(std::move(waiters), NoneOfThatName(name));
  options_.on_change();
  return absl::OkStatus();
}

void ServedAdapters::Stop() {
  std::vector<Waiter> waiters;
  std::deque<Call> calls;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, entry] : entries_) {
      for (Waiter& waiter : TakeWaiters(entry)) waiters.push_back(std::move(waiter));
    }
    calls.swap(calls_);
  }
  Tell(std::move(waiters), DrainingError());
  for (const Call& call : calls) call.done(DrainingError());
}

void ServedAdapters::Run() {
  using Clock = std::chrono::steady_clock;
  Time next_scan = Clock::now();
  bool call_is_next = false;
  while (true) {
    std::optional<Call> call;
    std::optional<std::string> wanted;
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [this] { return stopping_ || !wanted_.empty() || !calls_.empty(); };
      if (found_.empty()) changed_.wait_until(lock, next_scan, has_work);
      if (stopping_) return;
      // Requests and calls take turns; what was found comes behind both.
      if (!wanted_.empty() && (calls_.empty() || !call_is_next)) {
        wanted = std::move(wanted_.front());
        wanted_.pop_front();
      } else if (!calls_.empty()) {
        call = std::move(calls_.front());
        calls_.pop_front();
      }
    }
    if (wanted.has_value()) {
      call_is_next = true;
      (void)Read(*wanted, std::nullopt);  // The waiters are told.
    } else if (call.has_value()) {
      call_is_next = false;
      call->done(LoadNow(call->name, call->path, call->since));
    } else if (!found_.empty()) {
      OfferFound();
    } else if (Clock::now() >= next_scan) {
      Scan();
      next_scan = Clock::now() + absl::ToChronoNanoseconds(options_.scan_interval);
    }
  }
}

absl::StatusOr<ServedAdapters::Offer> ServedAdapters::LoadNow(const std::string& name,
                                                              const std::string& path, Time since) {
  Adapter known;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(name);
    if (at != entries_.end()) {
      known = at->second.description;
    } else if (entries_.size() >= kMostServedAdapters) {
      return NoPlace();
    }
  }
  if (known != nullptr) {
    ASSIGN_OR_RETURN(const ServedModel named, loader_->Describe(name, path));
    if (named.adapter_digest != known->adapter_digest) {
      return absl::AlreadyExistsError(
          absl::StrCat("adapter \"", name, "\" is served with other matrices: unload it before"));
    }
    {
      const std::lock_guard lock(mutex_);
      // From now on it is read from there, whatever becomes of the folder that it had.
      const auto at = entries_.find(name);
      if (at != entries_.end() && !at->second.at_start()) {
        at->second.path = path;
        at->second.stamp.clear();
      }
    }
    RETURN_IF_ERROR(Read(name, since));
    return Offer{known, true};
  }
  RETURN_IF_ERROR(MakeRoom(since));
  ASSIGN_OR_RETURN(ServedModel model, loader_->Load(name, path));
  const Adapter description = DescriptionOf(model);
  {
    const std::lock_guard lock(mutex_);
    unloaded_.erase(name);
    AddEntry(name, {.description = description,
                    .loaded = std::make_shared<const ServedModel>(std::move(model)),
                    .path = path});
  }
  options_.on_change();
  return Offer{description, true};
}

absl::Status ServedAdapters::Read(const std::string& name, std::optional<Time> called) {
  std::string path;
  uint64_t number = 0;
  Time since;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(name);
    if (at == entries_.end()) return NoneOfThatName(name);
    const Entry& entry = at->second;
    // Those who waited for it may have given up.
    if (entry.loaded != nullptr || (!called.has_value() && entry.waiters.empty())) {
      return absl::OkStatus();
    }
    path = entry.path;
    number = entry.number;
    since = called.value_or(entry.wanted_since);
  }
  const absl::Status room = MakeRoom(since);
  absl::StatusOr<ServedModel> read = room.ok() ? loader_->Load(name, path) : room;
  const bool is_unreadable = room.ok() && !read.ok() && !absl::IsResourceExhausted(read.status());
  Adapter loaded;
  if (read.ok()) loaded = std::make_shared<const ServedModel>(*std::move(read));
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(name);
    // The waiters of one that was unloaded have been told.
    if (at == entries_.end() || at->second.number != number) return NoneOfThatName(name);
    Entry& entry = at->second;
    waiters = TakeWaiters(entry);
    if (loaded != nullptr) {
      entry.loaded = loaded;
      // The files may have changed since they were described.
      if (loaded->adapter_digest != entry.description->adapter_digest) {
        entry.description = DescriptionOf(*loaded);
      }
    } else if (is_unreadable) {
      // It comes back with other files, and one from elsewhere not as the folder of its name.
      if (!entry.stamp.empty()) {
        refused_[name] = entry.stamp;
      } else if (entry.path != name) {
        unloaded_.insert(name);
      }
      entries_.erase(at);
    }
  }
  if (loaded == nullptr) options_.on_refused(name, read.status());
  if (loaded != nullptr || is_unreadable) options_.on_change();
  if (loaded == nullptr) {
    Tell(std::move(waiters), WaiterError(name, read.status()));
    return read.status();
  }
  Tell(std::move(waiters), loaded);
  return absl::OkStatus();
}

absl::Status ServedAdapters::MakeRoom(Time since) {
  const auto patience = absl::ToChronoNanoseconds(options_.room_wait);
  Time end = since + patience;
  while (!loader_->HasRoom()) {
    // One that leaves is room enough, as soon as no step reads it any more.
    if (!is_leaving_) {
      if (Adapter evicted = Evict(); evicted != nullptr) {
        evicted.reset();
        is_leaving_ = true;
        end = std::chrono::steady_clock::now() + patience;
        options_.on_change();
        continue;
      }
    }
    std::unique_lock lock(mutex_);
    if (stopping_) return DrainingError();
    if (std::chrono::steady_clock::now() >= end) {
      return absl::ResourceExhaustedError(
          "every adapter in memory is in use; --max_lora_adapters allows no more");
    }
    changed_.wait_for(lock, kRoomPoll, [this] { return stopping_; });
  }
  is_leaving_ = false;
  return absl::OkStatus();
}

ServedAdapters::Adapter ServedAdapters::Evict() {
  const std::lock_guard lock(mutex_);
  Entry* oldest = nullptr;
  for (auto& [name, entry] : entries_) {
    if (entry.at_start() || entry.loaded == nullptr) continue;
    // Copies are made of these two, or under the mutex: a count of one does not grow.
    const std::shared_ptr<const void>& lease = entry.loaded->adapter_lease;
    if (entry.loaded.use_count() > 1 || lease.use_count() > 1) continue;
    if (oldest == nullptr || entry.last_use < oldest->last_use) oldest = &entry;
  }
  return oldest == nullptr ? nullptr : std::exchange(oldest->loaded, nullptr);
}

void ServedAdapters::Refuse(const FoundAdapter& found, const absl::Status& why) {
  refused_[found.name] = found.stamp;
  options_.on_refused(found.name, why);
}

void ServedAdapters::Scan() {
  const absl::StatusOr<std::vector<FoundAdapter>> scanned = loader_->Scan(kMostFolders);
  if (!scanned.ok()) {
    // What is served goes on; the thread tries again.
    if (std::exchange(scan_status_, scanned.status()) != scanned.status()) {
      options_.on_refused("", scanned.status());
    }
    return;
  }
  scan_status_ = absl::OkStatus();
  std::map<std::string_view, const FoundAdapter*> names;
  for (const FoundAdapter& found : *scanned) names[found.name] = &found;
  std::erase_if(refused_, [&](const auto& entry) { return !names.contains(entry.first); });
  std::vector<Adapter> freed;
  std::vector<Waiter> waiters;
  size_t num_gone = 0;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(unloaded_, [&](const std::string& name) { return !names.contains(name); });
    for (auto at = entries_.begin(); at != entries_.end();) {
      Entry& entry = at->second;
      if (entry.stamp.empty() || names.contains(at->first)) {
        ++at;
        continue;
      }
      for (Waiter& waiter : TakeWaiters(entry)) waiters.push_back(std::move(waiter));
      freed.push_back(std::move(entry.loaded));
      at = entries_.erase(at);
      ++num_gone;
    }
    for (const FoundAdapter& found : *scanned) {
      const auto at = entries_.find(found.name);
      const bool is_known =
          at != entries_.end() && (at->second.stamp.empty() || at->second.stamp == found.stamp);
      const auto refused = refused_.find(found.name);
      const bool is_refused = refused != refused_.end() && refused->second == found.stamp;
      if (!is_known && !is_refused && !unloaded_.contains(found.name)) found_.push_back(found);
    }
  }
  Tell(std::move(waiters), absl::NotFoundError("the adapter's folder is gone"));
  if (num_gone > 0) options_.on_change();
}

void ServedAdapters::OfferFound() {
  const FoundAdapter found = std::move(found_.front());
  found_.pop_front();
  absl::Status status = CheckName(found.name);
  if (status.ok() && found.name == options_.base) {
    status = absl::AlreadyExistsError("the name is that of the model");
  }
  if (!status.ok()) return Refuse(found, status);
  {
    const std::lock_guard lock(mutex_);
    // It may be tried again: what was unloaded leaves a place.
    if (!HasName(found.name) && entries_.size() >= kMostServedAdapters) status = NoPlace();
  }
  if (!status.ok()) {
    if (without_place_.insert(found.name).second) options_.on_refused(found.name, status);
    return;
  }
  without_place_.erase(found.name);
  absl::StatusOr<ServedModel> model = loader_->Describe(found.name, found.path);
  Adapter description;
  if (model.ok()) description = DescriptionOf(*std::move(model));
  Adapter freed;
  std::vector<Waiter> waiters;
  bool has_changed = true;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(found.name);
    const bool is_there = at != entries_.end();
    // Meanwhile it was unloaded, or loaded by name.
    if (unloaded_.contains(found.name) || (is_there && at->second.stamp.empty())) return;
    if (is_there && description != nullptr &&
        description->adapter_digest == at->second.description->adapter_digest) {
      at->second.stamp = found.stamp;
      has_changed = false;
    } else {
      if (is_there) {
        waiters = TakeWaiters(at->second);
        freed = std::move(at->second.loaded);
        entries_.erase(at);
      }
      if (description != nullptr) {
        AddEntry(found.name,
                 {.description = description, .path = found.path, .stamp = found.stamp});
      }
      has_changed = is_there || description != nullptr;
    }
  }
  if (description == nullptr) Refuse(found, model.status());
  // They may come back for the new one.
  Tell(std::move(waiters), WaiterError(found.name, absl::AbortedError("its files have changed")));
  if (has_changed) options_.on_change();
}

}  // namespace continuo::server
