// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/runtime/served_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "services/protocol/error.h"
#include "tests/worker/server/runtime/fake_adapter_loader.h"

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
using testing::FakeAdapterFolder;
using testing::FakeAdapterLoader;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Adapter = ServedAdapters::Adapter;

ServedModel Base() {
  ServedModel base;
  base.name = "base";
  base.fingerprint = "F";
  return base;
}

// What a callback brings. Copies share it.
template <typename T>
class Result {
 public:
  std::function<void(absl::StatusOr<T>)> callback() {
    return [state = state_](absl::StatusOr<T> value) {
      state->value = std::move(value);
      state->done.Notify();
    };
  }
  bool IsThere() const { return state_->done.HasBeenNotified(); }
  absl::StatusOr<T> Wait() {
    state_->done.WaitForNotification();
    return std::move(state_->value);
  }

 private:
  struct State {
    absl::Notification done;
    absl::StatusOr<T> value = absl::UnknownError("not there yet");
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ServedAdaptersTest : public ::testing::Test {
 protected:
  ServedAdaptersTest() : ServedAdaptersTest(2) {}
  explicit ServedAdaptersTest(size_t most) : folder_(most) {}
  ~ServedAdaptersTest() override { folder_.SetOpen(true); }

  void Start(std::vector<ServedModel> at_start = {},
             absl::Duration scan_interval = absl::Milliseconds(1),
             absl::Duration room_wait = absl::ZeroDuration()) {
    ServedAdapters::Options options = {.base = "base"};
    options.on_refused = [this](const std::string& name, const absl::Status& why) {
      absl::MutexLock lock(&mutex_);
      refused_.push_back(name + ": " + std::string(why.message()));
    };
    options.scan_interval = scan_interval;
    options.room_wait = room_wait;
    adapters_.emplace(std::move(at_start), std::make_unique<FakeAdapterLoader>(&folder_, Base()),
                      std::move(options));
  }
  // "name" where it is in memory, else "(name)".
  std::vector<std::string> All() const {
    std::vector<std::string> all;
    for (const ServedAdapters::Offer& offer : adapters_->All()) {
      all.push_back(offer.in_memory ? offer.model->name : "(" + offer.model->name + ")");
    }
    return all;
  }
  void WaitForAll(const std::vector<std::string>& wanted) const {
    while (All() != wanted) std::this_thread::yield();
  }
  std::vector<std::string> refused() const {
    absl::MutexLock lock(&mutex_);
    return refused_;
  }
  absl::StatusOr<Adapter> Acquire(const std::string& name) {
    Result<Adapter> result;
    ServedAdapters::Acquired found = adapters_->Acquire(name, 1, 1, result.callback());
    if (found.is_unknown) return absl::NotFoundError("unknown");
    if (found.adapter != nullptr) return found.adapter;
    return result.Wait();
  }
  absl::Status Load(const std::string& name, const std::string& path) {
    Result<ServedAdapters::Offer> result;
    adapters_->Load(name, path, result.callback());
    return result.Wait().status();
  }

  FakeAdapterFolder folder_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> refused_ ABSL_GUARDED_BY(mutex_);
  std::optional<ServedAdapters> adapters_;
};

TEST_F(ServedAdaptersTest, TheFolderIsServedWithoutBeingRead) {
  folder_.Set("poet", "P");
  folder_.Set("clerk", "C");
  folder_.Set("sub/folder", "S");
  Start();
  WaitForAll({"(clerk)", "(poet)"});
  EXPECT_EQ(folder_.num_loads(), 0);
  EXPECT_EQ(adapters_->Find("poet")->fingerprint, "F/P");
  EXPECT_EQ(adapters_->Find("poet")->adapter, model::kNoAdapter);
  EXPECT_EQ(adapters_->Find("folder"), nullptr);
  const absl::StatusOr<Adapter> poet = Acquire("poet");
  ASSERT_TRUE(poet.ok()) << poet.status();
  EXPECT_NE((*poet)->adapter, model::kNoAdapter);
  EXPECT_EQ((*poet)->fingerprint, "F/P");
  EXPECT_THAT(All(), ElementsAre("(clerk)", "poet"));
  EXPECT_EQ(*Acquire("poet"), *poet);
  EXPECT_EQ(folder_.num_loads(), 1);
}

TEST_F(ServedAdaptersTest, TheFolderIsLookedAtAgain) {
  folder_.Set("poet", "P");
  folder_.Set("bad", "?");
  folder_.Set("base", "B");
  Start();
  WaitForAll({"(poet)"});
  const Adapter old = *Acquire("poet");
  folder_.Set("poet", "Q");
  folder_.Set("bad", "B");
  WaitForAll({"(bad)", "(poet)"});
  EXPECT_EQ(old->adapter_digest, "P") << "who has it keeps it";
  EXPECT_EQ((*Acquire("poet"))->adapter_digest, "Q");
  folder_.Set("poet", "");
  folder_.Set("bad", "?");
  WaitForAll({});
  // Each is told once for its files.
  EXPECT_THAT(refused(), ElementsAre(HasSubstr("bad: bad: cannot be read"),
                                     HasSubstr("base: the name is that of the model"),
                                     HasSubstr("bad: bad: cannot be read")));
}

TEST_F(ServedAdaptersTest, TheLeastRecentlyUsedThatNobodyHoldsIsEvicted) {
  for (const char* name : {"a", "b", "c", "d"}) folder_.Set(name, name);
  Start();
  WaitForAll({"(a)", "(b)", "(c)", "(d)"});
  ASSERT_TRUE(Acquire("a").ok());
  ASSERT_TRUE(Acquire("b").ok());
  ASSERT_TRUE(Acquire("a").ok());
  ASSERT_TRUE(Acquire("c").ok());
  EXPECT_THAT(All(), ElementsAre("a", "(b)", "c", "(d)"));
  const Adapter a = *Acquire("a");
  // A request in the engine has no more than the lease.
  const std::shared_ptr<const void> c = (*Acquire("c"))->adapter_lease;
  const absl::StatusOr<Adapter> d = Acquire("d");
  EXPECT_EQ(d.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(protocol::ReasonOf(d.status()), protocol::kReasonOverloaded);
  EXPECT_EQ(Load("e", "d").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(All(), ElementsAre("a", "(b)", "c", "(d)"));
  EXPECT_EQ(folder_.NumInMemory(), 2u);
}

TEST_F(ServedAdaptersTest, ALoadWaitsForRoom) {
  for (const char* name : {"a", "b", "c"}) folder_.Set(name, name);
  Start({}, absl::Milliseconds(1), /*room_wait=*/absl::Hours(1));
  WaitForAll({"(a)", "(b)", "(c)"});
  const Adapter a = *Acquire("a");
  Adapter b = *Acquire("b");
  Result<Adapter> c;
  EXPECT_EQ(adapters_->Acquire("c", 9, 1, c.callback()).adapter, nullptr);
  EXPECT_FALSE(c.IsThere());
  b.reset();
  ASSERT_TRUE(c.Wait().ok());
  EXPECT_THAT(All(), ElementsAre("a", "(b)", "c"));
}

class FourAdaptersTest : public ServedAdaptersTest {
 protected:
  FourAdaptersTest() : ServedAdaptersTest(4) {}
};

// Its memory is free only once the step that reads it is over; the others stay meanwhile.
TEST_F(FourAdaptersTest, OneIsEvictedForOne) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) folder_.Set(name, name);
  Start({}, absl::Hours(1), /*room_wait=*/absl::Hours(1));
  WaitForAll({"(a)", "(b)", "(c)", "(d)", "(e)", "(f)"});
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(Acquire(name).ok());
  auto step = folder_.ReadInStep();
  ASSERT_EQ(step.size(), 4u);
  const int looks = folder_.num_looks();
  Result<Adapter> e, f;
  EXPECT_EQ(adapters_->Acquire("e", 9, 1, e.callback()).adapter, nullptr);
  EXPECT_EQ(adapters_->Acquire("f", 10, 1, f.callback()).adapter, nullptr);
  while (folder_.num_looks() < looks + 10) std::this_thread::yield();
  EXPECT_THAT(All(), ElementsAre("(a)", "b", "c", "d", "(e)", "(f)"));
  EXPECT_FALSE(e.IsThere());
  step.clear();
  ASSERT_TRUE(e.Wait().ok());
  ASSERT_TRUE(f.Wait().ok());
  EXPECT_THAT(All(), ElementsAre("(a)", "(b)", "c", "d", "e", "f"));
}

// Each counts from its arrival on, so one that waits does not make those behind it wait as long.
TEST_F(ServedAdaptersTest, WaitsForRoomPassAtTheSameTime) {
  constexpr size_t kNames = 40;
  constexpr absl::Duration kWait = absl::Milliseconds(100);
  for (const char* name : {"a", "b"}) folder_.Set(name, name);
  const auto name_of = [](size_t i) { return absl::StrCat("c", i); };
  for (size_t i = 0; i < kNames; ++i) folder_.Set(name_of(i), "C");
  Start({}, absl::Milliseconds(1), kWait);
  while (All().size() < kNames + 2) std::this_thread::yield();
  const Adapter a = *Acquire("a"), b = *Acquire("b");
  const absl::Time start = absl::Now();
  std::vector<Result<Adapter>> waits(kNames);
  for (size_t i = 0; i < kNames; ++i) {
    EXPECT_EQ(adapters_->Acquire(name_of(i), 100 + i, 1, waits[i].callback()).adapter, nullptr);
  }
  Result<ServedAdapters::Offer> call;
  adapters_->Load("late", "a", call.callback());
  for (Result<Adapter>& wait : waits) {
    EXPECT_EQ(wait.Wait().status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(call.Wait().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(absl::Now() - start, kNames * kWait / 2);
}

TEST_F(ServedAdaptersTest, RequestsDoNotKeepCallsWaiting) {
  constexpr size_t kNames = 4;
  for (const char* name : {"a", "b"}) folder_.Set(name, name);
  const auto name_of = [](size_t i) { return absl::StrCat("c", i); };
  for (size_t i = 0; i < kNames; ++i) folder_.Set(name_of(i), "C");
  Start({}, absl::Milliseconds(1), /*room_wait=*/absl::Milliseconds(20));
  while (All().size() < kNames + 2) std::this_thread::yield();
  const Adapter a = *Acquire("a"), b = *Acquire("b");
  Result<ServedAdapters::Offer> call;
  std::array<std::optional<Result<Adapter>>, kNames> waits;
  // Some wait at any time.
  for (uint64_t round = 0; round < 20; ++round) {
    for (size_t i = 0; i < kNames; ++i) {
      if (waits[i].has_value()) {
        EXPECT_EQ(waits[i]->Wait().status().code(), absl::StatusCode::kResourceExhausted);
      }
      adapters_->Acquire(name_of(i), 100 + i, 1, waits[i].emplace().callback());
    }
    // It is served by this name, so it needs no room.
    if (round == 0) adapters_->Load("a", "a", call.callback());
  }
  EXPECT_TRUE(call.IsThere());
  EXPECT_TRUE(call.Wait().ok());
}

TEST_F(ServedAdaptersTest, WhoWaitsForOneIsServedByOneRead) {
  folder_.Set("poet", "P");
  Start();
  WaitForAll({"(poet)"});
  folder_.SetOpen(false);
  std::vector<Result<Adapter>> results(50);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(adapters_->Acquire("poet", 100 + i, 1, results[i].callback()).adapter, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  adapters_->GiveUp(107, absl::CancelledError("left"));
  EXPECT_EQ(results[7].Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(results[8].IsThere());
  folder_.SetOpen(true);
  for (size_t i = 0; i < results.size(); ++i) {
    if (i == 7) continue;
    const absl::StatusOr<Adapter> adapter = results[i].Wait();
    ASSERT_TRUE(adapter.ok()) << adapter.status();
    EXPECT_EQ((*adapter)->adapter_digest, "P");
  }
  EXPECT_EQ(folder_.num_loads(), 1);
}

TEST_F(ServedAdaptersTest, WaitingBytesAreBounded) {
  folder_.Set("poet", "P");
  Start();
  WaitForAll({"(poet)"});
  folder_.SetOpen(false);
  Result<Adapter> first, second, third;
  adapters_->Acquire("poet", 1, ServedAdapters::kMaxWaitingBytes, first.callback());
  adapters_->Acquire("poet", 2, 1, second.callback());
  adapters_->Acquire("poet", 3, 0, third.callback());
  EXPECT_EQ(protocol::ReasonOf(second.Wait().status()), protocol::kReasonOverloaded);
  folder_.SetOpen(true);
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_TRUE(third.Wait().ok());
}

TEST_F(ServedAdaptersTest, OneIsLoadedByName) {
  folder_.Set("sub/poet", "P");
  folder_.Set("sub/other", "O");
  Start();
  EXPECT_EQ(Load("poet", "sub/none").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Load("poet", "sub/poet").ok());
  EXPECT_THAT(All(), ElementsAre("poet"));
  EXPECT_TRUE(Load("poet", "sub/poet").ok()) << "it is there";
  EXPECT_EQ(folder_.num_loads(), 1 + 1);
  EXPECT_EQ(Load("poet", "sub/other").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Load("base", "sub/poet").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Load("", "sub/poet").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Load("\xff", "sub/poet").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Load(std::string(257, 'a'), "sub/poet").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Load("x", "").code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(adapters_->Unload("poet").ok());
  ASSERT_TRUE(Load("poet", "sub/other").ok());
  EXPECT_EQ((*Acquire("poet"))->adapter_digest, "O");
  // Evicted, it is served all the same.
  ASSERT_TRUE(Load("second", "sub/poet").ok());
  ASSERT_TRUE(Load("third", "sub/poet").ok());
  EXPECT_THAT(All(), ElementsAre("(poet)", "second", "third"));
  EXPECT_TRUE(Acquire("poet").ok());
}

// Its files may lie elsewhere then, and the folder that it had may go.
TEST_F(ServedAdaptersTest, ALoadOfTheSameMatricesTakesItsPath) {
  folder_.Set("v1/poet", "P");
  folder_.Set("v2/poet", "P");
  folder_.Set("clerk", "C");
  Start();
  WaitForAll({"(clerk)"});
  ASSERT_TRUE(Load("poet", "v1/poet").ok());
  ASSERT_TRUE(Load("poet", "v2/poet").ok());
  // One that a scan has found becomes one of that call.
  ASSERT_TRUE(Load("clerk", "clerk").ok());
  folder_.Set("more/clerk", "C");
  ASSERT_TRUE(Load("clerk", "more/clerk").ok());
  folder_.Set("v1/poet", "");
  folder_.Set("clerk", "");
  // Both are evicted, behind a scan.
  for (const char* name : {"x", "y"}) folder_.Set(name, name);
  WaitForAll({"clerk", "poet", "(x)", "(y)"});
  for (const char* name : {"x", "y"}) ASSERT_TRUE(Acquire(name).ok());
  EXPECT_THAT(All(), ElementsAre("(clerk)", "(poet)", "x", "y"));
  for (const char* name : {"clerk", "poet"}) {
    const absl::StatusOr<Adapter> adapter = Acquire(name);
    EXPECT_TRUE(adapter.ok()) << adapter.status();
  }
}

// A call that reads it takes the path before.
TEST_F(ServedAdaptersTest, ALoadReadsFromItsOwnPath) {
  folder_.Set("poet", "P");
  folder_.Set("v2/poet", "P");
  Start({}, absl::Hours(1));
  WaitForAll({"(poet)"});
  folder_.Set("poet", "");
  ASSERT_TRUE(Load("poet", "v2/poet").ok());
  EXPECT_THAT(All(), ElementsAre("poet"));
}

TEST_F(ServedAdaptersTest, AnUnloadedOneStaysWithWhoHasIt) {
  folder_.Set("poet", "P");
  Start();
  WaitForAll({"(poet)"});
  std::optional<Adapter> held = *Acquire("poet");
  ASSERT_TRUE(adapters_->Unload("poet").ok());
  EXPECT_THAT(All(), IsEmpty());
  EXPECT_EQ(adapters_->Find("poet"), nullptr);
  EXPECT_EQ(Acquire("poet").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(adapters_->Unload("poet").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(folder_.NumInMemory(), 1u);
  held.reset();
  while (folder_.NumInMemory() > 0) std::this_thread::yield();
  // Scans leave it alone until it is loaded by name, or its folder was gone.
  folder_.Set("clerk", "C");
  WaitForAll({"(clerk)"});
  ASSERT_TRUE(Load("poet", "poet").ok());
  EXPECT_THAT(All(), ElementsAre("(clerk)", "poet"));
  ASSERT_TRUE(adapters_->Unload("poet").ok());
  folder_.Set("poet", "");
  folder_.Set("clerk", "");
  WaitForAll({});
  folder_.Set("poet", "P");
  WaitForAll({"(poet)"});
}

TEST_F(ServedAdaptersTest, AnUnloadReachesThoseWhoWait) {
  folder_.Set("poet", "P");
  Start();
  WaitForAll({"(poet)"});
  folder_.SetOpen(false);
  Result<Adapter> waiting;
  adapters_->Acquire("poet", 1, 1, waiting.callback());
  while (folder_.num_loads() == 0) std::this_thread::yield();
  ASSERT_TRUE(adapters_->Unload("poet").ok());
  EXPECT_EQ(waiting.Wait().status().code(), absl::StatusCode::kNotFound);
  folder_.SetOpen(true);
  // What was read meanwhile is dropped.
  ASSERT_TRUE(Load("poet", "poet").ok());
  EXPECT_EQ(folder_.NumInMemory(), 1u);
}

TEST_F(ServedAdaptersTest, ThoseOfTheStartStay) {
  ServedModel poet = Base();
  poet.name = "poet";
  poet.adapter_digest = "P";
  poet.adapter = 77;
  poet.adapter_lease = std::make_shared<const int>(0);
  folder_.Set("poet", "other");
  folder_.Set("a", "A");
  folder_.Set("b", "B");
  folder_.Set("c", "C");
  Start({poet});
  WaitForAll({"(a)", "(b)", "(c)", "poet"});
  EXPECT_EQ((*Acquire("poet"))->adapter, 77);
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(Acquire(name).ok());
  EXPECT_EQ(All().back(), "poet");
  EXPECT_EQ(adapters_->Unload("poet").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Load("poet", "a").code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ServedAdaptersTest, WithoutALoaderNothingIsLoaded) {
  ServedAdapters adapters({}, nullptr, {.base = "base"});
  Result<ServedAdapters::Offer> result;
  adapters.Load("poet", "poet", result.callback());
  const absl::Status status = result.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--lora_root"));
}

TEST_F(ServedAdaptersTest, OneThatCannotBeReadIsUnavailableHere) {
  folder_.Set("poet", "P");
  Start({}, absl::Hours(1));
  WaitForAll({"(poet)"});
  folder_.Set("poet", "?");
  const absl::Status status = Acquire("poet").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonNoWorker);
  EXPECT_THAT(std::string(status.message()), HasSubstr("poet: cannot be read"));
  // The next request finds none, and nothing is read for it.
  EXPECT_THAT(All(), IsEmpty());
  EXPECT_EQ(Acquire("poet").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(folder_.num_loads(), 1);
  EXPECT_THAT(refused(), ElementsAre(HasSubstr("poet: poet: cannot be read")));
}

TEST_F(ServedAdaptersTest, OneThatCannotBeReadComesBackWithOtherFiles) {
  folder_.Set("poet", "!");
  Start();
  WaitForAll({"(poet)"});
  EXPECT_EQ(Acquire("poet").status().code(), absl::StatusCode::kUnavailable);
  // Scans look at folders by their names.
  folder_.Set("zed", "Z");
  WaitForAll({"(zed)"});
  EXPECT_THAT(refused(), ElementsAre(HasSubstr("poet: poet: cannot be loaded")));
  folder_.Set("poet", "P");
  WaitForAll({"(poet)", "(zed)"});
  EXPECT_TRUE(Acquire("poet").ok());
}

TEST_F(ServedAdaptersTest, OneThatWasLoadedByNameGoesWithItsFolder) {
  folder_.Set("more/poet", "P");
  Start();
  ASSERT_TRUE(Load("poet", "more/poet").ok());
  for (const char* name : {"poet", "x", "y"}) folder_.Set(name, name);
  WaitForAll({"poet", "(x)", "(y)"});
  for (const char* name : {"x", "y"}) ASSERT_TRUE(Acquire(name).ok());
  folder_.Set("more/poet", "");
  const absl::Status status = Acquire("poet").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more/poet: no such folder"));
  EXPECT_EQ(Acquire("poet").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(refused().size(), 1u);
  // The folder of its name is another adapter, which nobody asked for.
  folder_.Set("zed", "Z");
  while (adapters_->Find("zed") == nullptr) std::this_thread::yield();
  EXPECT_EQ(adapters_->Find("poet"), nullptr);
  ASSERT_TRUE(Load("poet", "poet").ok());
  EXPECT_EQ((*Acquire("poet"))->adapter_digest, "poet");
}

// The files changed between scan and load: requests say which they got.
TEST_F(ServedAdaptersTest, AFingerprintIsThatOfWhatWasRead) {
  folder_.Set("poet", "P");
  Start({}, absl::Hours(1));
  WaitForAll({"(poet)"});
  folder_.Set("poet", "Q");
  EXPECT_EQ((*Acquire("poet"))->fingerprint, "F/Q");
  EXPECT_EQ(adapters_->Find("poet")->fingerprint, "F/Q");
}

TEST_F(ServedAdaptersTest, NoMoreNamesThanReportsHold) {
  for (size_t i = 0; i <= kMostServedAdapters; ++i) folder_.Set(absl::StrCat("a", 1000 + i), "A");
  Start();
  while (refused().empty()) std::this_thread::yield();
  EXPECT_EQ(All().size(), kMostServedAdapters);
  EXPECT_EQ(Load("b", "a1000").code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(adapters_->Unload("a1000").ok());
  // The place is the next one's.
  while (adapters_->Find("a1256") == nullptr) std::this_thread::yield();
}

TEST_F(ServedAdaptersTest, AnEndEndsAllWaits) {
  folder_.Set("poet", "P");
  Start();
  WaitForAll({"(poet)"});
  folder_.SetOpen(false);
  Result<Adapter> waiting;
  Result<ServedAdapters::Offer> loading;
  adapters_->Acquire("poet", 1, 1, waiting.callback());
  while (folder_.num_loads() == 0) std::this_thread::yield();
  adapters_->Load("other", "poet", loading.callback());
  std::thread stopper([this] { adapters_->Stop(); });
  folder_.SetOpen(true);
  stopper.join();
  // It was read, or given up.
  const absl::StatusOr<Adapter> adapter = waiting.Wait();
  if (!adapter.ok()) {
    EXPECT_EQ(adapter.status().code(), absl::StatusCode::kUnavailable);
  }
  (void)loading.Wait();
  EXPECT_EQ(Load("late", "poet").code(), absl::StatusCode::kUnavailable);
}

// For ThreadSanitizer: everybody at once, with one place for three adapters.
TEST(ServedAdaptersRaceTest, EverybodyAtOnce) {
  FakeAdapterFolder folder(1);
  for (const char* name : {"a", "b", "c"}) folder.Set(name, name);
  ServedAdapters::Options options = {.base = "base"};
  options.scan_interval = absl::ZeroDuration();
  ServedAdapters adapters({}, std::make_unique<FakeAdapterLoader>(&folder, Base()),
                          std::move(options));
  while (adapters.All().size() < 3) std::this_thread::yield();
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const std::string name(1, static_cast<char>('a' + thread % 3));
      for (uint64_t i = 0; i < 200; ++i) {
        Result<Adapter> result;
        const uint64_t waiter = 1000 * thread + i;
        auto found = adapters.Acquire(name, waiter, 1, result.callback());
        if (found.adapter != nullptr) {
          EXPECT_EQ(found.adapter->adapter_digest, name);
          continue;
        }
        if (found.is_unknown) continue;
        if (i % 7 == 0) adapters.GiveUp(waiter, absl::CancelledError("left"));
        const auto late = result.Wait();
        if (late.ok()) {
          EXPECT_EQ((*late)->adapter_digest, name);
        }
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 50; ++i) {
      (void)adapters.Unload("a");
      Result<ServedAdapters::Offer> result;
      adapters.Load("a", "a", result.callback());
      (void)result.Wait();
      (void)adapters.All();
    }
  });
  for (std::thread& thread : threads) thread.join();
  adapters.Stop();
  EXPECT_LE(folder.NumInMemory(), 1u);
}

}  // namespace
}  // namespace continuo::server
