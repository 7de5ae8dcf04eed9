// SPDX-License-Identifier: Apache-2.0
// Kernels on the host. Each thread of a block is a fiber, and blocks run one after the other on the
// stream's thread. Between two barriers a warp runs as far as it can before the next one moves, in
// an order that changes, so that a missing barrier changes results. Copies to shared memory leave
// NaN at their destination until they are awaited, since they may arrive at any time. Shared memory
// is NaN at first. wgmma products leave NaN in their sums, and read their operands when they are
// awaited.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention/wgmma.h"
#include "kernels/cuda/runtime/launch.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/shim/block_scheduler.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kGuardBytes = 256;  // behind shared memory
constexpr unsigned char kGuard = 0xa5;
// Limits of a block's shared memory: on compute capability 8.6 and 8.9, and on 9.0.
constexpr size_t kMaxShared = 99 << 10, kMostShared = 227 << 10;
// The address of shared memory in matrix descriptors. It is deliberately not aligned as they need
// it.
constexpr uint32_t kSharedAddress = 1024 + 176;

enum class State : uint8_t { kRunnable, kAtWarp, kAtBlock, kAtRelease, kDone };

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  size_t group;
};

// A thread's part of a wgmma product.
struct Product {
  float (*d)[4];
  int n8;             // columns of d in eights
  const uint32_t* a;  // or null for a_matrix
  uint64_t a_matrix, b;
  bool b_is_transposed, adds, is_f16;
  size_t group;
};

// The point where a fiber stopped. A fiber begins by a context and is then switched by jumps, which
// need no system call.
struct Stop {
  ucontext_t context;
  jmp_buf jump;
  bool begun = true;
};

void Switch(Stop& from, Stop& to) {
  if (_setjmp(from.jump) != 0) return;
  if (to.begun) _longjmp(to.jump, 1);
  to.begun = true;
  setcontext(&to.context);
}

struct Fiber {
  Stop stop;
  std::unique_ptr<std::array<char, kStackBytes>> stack;
  State state = State::kDone;
  const void* awaited = nullptr;  // in kAtRelease
  std::vector<Copy> copies;       // not yet arrived
  size_t num_groups = 0;          // number of ended groups
  size_t num_exchanges = 0;
  bool has_begun = false;

  std::vector<Product> products;                    // not yet awaited
  std::map<float (*)[4], std::vector<float>> sums;  // destinations of sums
  size_t num_product_groups = 0;                    // number of ended groups
  bool may_multiply = false;                        // BeginProducts has been called
  bool has_unshown_copies = false;                  // ShowToProducts is needed
};

// A value, an address or fragments that a lane shows to its warp.
struct Shown {
  float value = 0;
  const void* row = nullptr;
  uint32_t words[6] = {};
};

// Runs the blocks of one stream's thread.
struct Runner {
  Stop scheduler;
  std::vector<std::unique_ptr<Fiber>> fibers;
  int num_threads = 0;
  int current = 0;
  const std::function<void()>* thread = nullptr;
  std::vector<unsigned char> shared;  // with room for alignment and a guard
  size_t shared_bytes = 0;
  bool has_wgmma = false;  // the grid has begun a wgmma product
  // There are two, used in turn: a lane that is ahead shows the next thing while others read the
  // last one.
  std::vector<std::array<Shown, 2>> shown;

  unsigned char* SharedMemory() {
    const auto address = reinterpret_cast<uintptr_t>(shared.data());
    return shared.data() + (256 - address % 256) % 256;
  }
};

Runner& TheRunner() {
  thread_local Runner runner;
  return runner;
}

void RunFiber() {
  while (true) {
    Runner& runner = TheRunner();
    (*runner.thread)();
    Fiber& fiber = *runner.fibers[runner.current];
    if (!fiber.copies.empty()) Broken("a thread ends before its copies");
    if (!fiber.products.empty()) Broken("a thread ends before its products");
    if (!fiber.has_begun) Broken("a thread ends without WaitForPreviousKernel");
    fiber.state = State::kDone;
    Switch(fiber.stop, runner.scheduler);
  }
}

// Stops the current fiber until its warp or block has come here.
void Wait(State state) {
  Runner& runner = TheRunner();
  Fiber& fiber = *runner.fibers[runner.current];
  fiber.state = state;
  const dim3 index = threadIdx;
  Switch(fiber.stop, runner.scheduler);
  threadIdx = index;
}

bool AllAre(const Runner& runner, int begin, int end, State state) {
  return std::all_of(runner.fibers.begin() + begin, runner.fibers.begin() + end,
                     [&](const auto& fiber) { return fiber->state == state; });
}

void Release(Runner& runner, int begin, int end) {
  for (int i = begin; i < end; ++i) runner.fibers[i]->state = State::kRunnable;
}

// Runs the warp that begins with a thread until its threads end or wait for others. Returns whether
// any ran.
bool RunWarp(Runner& runner, int begin, bool backwards) {
  const int end = std::min(runner.num_threads, begin + kWarp);
  bool has_run = false;
  while (true) {
    for (int i = 0; i < end - begin; ++i) {
      const int t = backwards ? end - 1 - i : begin + i;
      if (runner.fibers[t]->state != State::kRunnable) continue;
      has_run = true;
      runner.current = t;
      threadIdx = {static_cast<unsigned>(t), 0, 0};
      Switch(runner.scheduler, runner.fibers[t]->stop);
    }
    if (!AllAre(runner, begin, end, State::kAtWarp)) return has_run;
    Release(runner, begin, end);
    backwards = !backwards;
  }
}

void RunBlock(Runner& runner, bool backwards) {
  const int n = runner.num_threads;
  for (int i = 0; i < n; ++i) {
    Fiber& fiber = *runner.fibers[i];
    fiber.state = State::kRunnable;
    fiber.num_groups = fiber.num_exchanges = fiber.num_product_groups = 0;
    fiber.has_begun = fiber.may_multiply = fiber.has_unshown_copies = false;
  }
  std::fill(runner.shared.begin(), runner.shared.end(), 0xff);
  unsigned char* const guard = runner.SharedMemory() + runner.shared_bytes;
  std::memset(guard, kGuard, kGuardBytes);
  BeginBarriers();
  while (!AllAre(runner, 0, n, State::kDone)) {
    // A warp runs as far as it can before the next one moves.
    const int num_warps = (n + kWarp - 1) / kWarp;
    bool has_run = false;
    for (int i = 0; i < num_warps; ++i) {
      has_run |= RunWarp(runner, (backwards ? num_warps - 1 - i : i) * kWarp, backwards);
    }
    backwards = !backwards;
    if (AllAre(runner, 0, n, State::kAtBlock)) {
      Release(runner, 0, n);
    } else if (!has_run) {
      Broken("threads wait for others that do not come");
    }
  }
  EndBarriers();
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (guard[i] != kGuard) Broken("a write behind shared memory");
  }
}

void RunBlocks(dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& thread) {
  Runner& runner = TheRunner();
  runner.num_threads = threads;
  runner.thread = &thread;
  runner.shared_bytes = shared_bytes;
  runner.has_wgmma = false;
  runner.shared.resize(shared_bytes + 256 + kGuardBytes);
  runner.shown.resize(threads);
  while (static_cast<int>(runner.fibers.size()) < threads) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = std::make_unique_for_overwrite<std::array<char, kStackBytes>>();
    getcontext(&fiber->stop.context);
    fiber->stop.context.uc_stack.ss_sp = fiber->stack->data();
    fiber->stop.context.uc_stack.ss_size = fiber->stack->size();
    fiber->stop.context.uc_link = nullptr;
    makecontext(&fiber->stop.context, RunFiber, 0);
    fiber->stop.begun = false;
    runner.fibers.push_back(std::move(fiber));
  }
  gridDim = grid;
  blockDim = {static_cast<unsigned>(threads), 1, 1};
  bool backwards = false;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        RunBlock(runner, backwards);
        backwards = !backwards;
      }
    }
  }
  if (shared_bytes > kMaxShared && !runner.has_wgmma) {
    Broken("more shared memory than all devices have");
  }
}

// Shows something to the warp and returns what its lanes show, once all do.
const Shown& OfLane(Runner& runner, size_t turn, int lane) {
  return runner.shown[runner.current / kWarp * kWarp + lane][turn];
}
size_t Exchange(Runner& runner, const Shown& shown) {
  Fiber& fiber = *runner.fibers[runner.current];
  const size_t turn = fiber.num_exchanges++ % 2;
  runner.shown[runner.current][turn] = shown;
  Wait(State::kAtWarp);
  return turn;
}

uint16_t Element(const void* row, int i) {
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(row) + 2 * i, sizeof(bits));
  return bits;
}
// Splits a pair of uint16_t (bf16) or Half into elements.
template <typename Number>
double Low(uint32_t pair) {
  return static_cast<double>(Widen(std::bit_cast<Number>(static_cast<uint16_t>(pair))));
}
template <typename Number>
double High(uint32_t pair) {
  return Low<Number>(pair >> 16);
}
uint32_t Pair(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

void CheckShared(const void* data, size_t bytes = 16) {
  Runner& runner = TheRunner();
  const auto offset =
      reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(runner.SharedMemory());
  if (offset % bytes != 0) Broken("bytes of shared memory that are not aligned");
  if (offset + bytes > runner.shared_bytes) Broken("not in shared memory");
}

}  // namespace

void Broken(const char* what) {
  std::fprintf(stderr, "kernel: %s, block %u %u %u\n", what, blockIdx.x, blockIdx.y, blockIdx.z);
  std::abort();
}

void AwaitRelease(const void* what) {
  Runner& runner = TheRunner();
  runner.fibers[runner.current]->awaited = what;
  Wait(State::kAtRelease);
}
void ReleaseThoseThatAwait(const void* what) {
  for (const auto& fiber : TheRunner().fibers) {
    if (fiber->state == State::kAtRelease && fiber->awaited == what) {
      fiber->state = State::kRunnable;
    }
  }
}

unsigned char* SharedMemory() { return TheRunner().SharedMemory(); }
void WaitForPreviousKernel() {
  Runner& runner = TheRunner();
  runner.fibers[runner.current]->has_begun = true;
}
void Prefetch(const void* from) {
  // A device would read this memory, so it has to exist.
  (void)*static_cast<const volatile char*>(from);
}
void SyncBlock() { Wait(State::kAtBlock); }
void SyncWarp() { Wait(State::kAtWarp); }

float ShuffleXor(float value, int mask) {
  Runner& runner = TheRunner();
  const size_t turn = Exchange(runner, {.value = value});
  return OfLane(runner, turn, runner.current % kWarp ^ mask).value;
}

bool AnyLane(bool is_so) {
  Runner& runner = TheRunner();
  const size_t turn = Exchange(runner, {.words = {is_so}});
  bool any = false;
  for (int lane = 0; lane < kWarp; ++lane) any |= OfLane(runner, turn, lane).words[0] != 0;
  return any;
}

void LoadMatrices(uint32_t (&out)[4], const void* row) {
  CheckShared(row);
  Runner& runner = TheRunner();
  const size_t turn = Exchange(runner, {.row = row});
  const int lane = runner.current % kWarp, c = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const void* const from = OfLane(runner, turn, 8 * i + lane / 4).row;
    out[i] = Pair(Element(from, c), Element(from, c + 1));
  }
  Wait(State::kAtWarp);  // others may write to the rows after this
}

void LoadMatricesTransposed(uint32_t (&out)[4], const void* row) {
  CheckShared(row);
  Runner& runner = TheRunner();
  const size_t turn = Exchange(runner, {.row = row});
  const int lane = runner.current % kWarp, r = lane / 4, c = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    out[i] = Pair(Element(OfLane(runner, turn, 8 * i + c).row, r),
                  Element(OfLane(runner, turn, 8 * i + c + 1).row, r));
  }
  Wait(State::kAtWarp);
}

uint32_t TransposeMatrix(uint32_t pair) {
  Runner& runner = TheRunner();
  const size_t turn = Exchange(runner, {.words = {pair}});
  const int lane = runner.current % kWarp, r = lane / 4, c = lane % 4 * 2;
  const auto element = [&](int row, int column) {
    const uint32_t two = OfLane(runner, turn, row * 4 + column / 2).words[0];
    return static_cast<uint16_t>(column % 2 == 0 ? two : two >> 16);
  };
  return Pair(element(c, r), element(c + 1, r));
}

template <typename Number>
void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Runner& runner = TheRunner();
  const size_t turn = Exchange(runner, {.words = {a[0], a[1], a[2], a[3], b0, b1}});
  const int lane = runner.current % kWarp, r = lane / 4, c = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    // This is element (r or r + 8, c or c + 1).
    const int half = i / 2, column = c + i % 2;
    double sum = d[i];
    for (int k = 0; k < 16; k += 2) {
      const uint32_t pair = OfLane(runner, turn, r * 4 + k % 8 / 2).words[half + k / 8 * 2];
      const uint32_t other = OfLane(runner, turn, column * 4 + k % 8 / 2).words[4 + k / 8];
      sum += Low<Number>(pair) * Low<Number>(other);
      sum += High<Number>(pair) * High<Number>(other);
    }
    d[i] = static_cast<float>(sum);
  }
}
template void MultiplyAdd<uint16_t>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);
template void MultiplyAdd<Half>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);

template <typename Number>
uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
  // Products and sums of so few bits are exact in f64 and f32.
  Number low, high;
  Store(&low, static_cast<float>(Low<Number>(a) * Low<Number>(b) + Low<Number>(c)));
  Store(&high, static_cast<float>(High<Number>(a) * High<Number>(b) + High<Number>(c)));
  return Pair(std::bit_cast<uint16_t>(low), std::bit_cast<uint16_t>(high));
}
template uint32_t MultiplyAddPairs<uint16_t>(uint32_t, uint32_t, uint32_t);
template uint32_t MultiplyAddPairs<Half>(uint32_t, uint32_t, uint32_t);

namespace {

void StartCopy(void* shared, const void* from, bool wanted, size_t bytes) {
  CheckShared(shared, bytes);
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0)
    Broken("a copy of bytes that are not aligned");
  if (!wanted) from = nullptr;
  Runner& runner = TheRunner();
  Fiber& fiber = *runner.fibers[runner.current];
  fiber.copies.push_back({shared, from, bytes, fiber.num_groups});
  std::memset(shared, 0xff, bytes);
}

}  // namespace

void StartCopy16(void* shared, const void* from, bool wanted) {
  StartCopy(shared, from, wanted, 16);
}
void StartCopy4(void* shared, const void* from, bool wanted) { StartCopy(shared, from, wanted, 4); }

void EndCopies() {
  Runner& runner = TheRunner();
  ++runner.fibers[runner.current]->num_groups;
}

void AwaitCopies(int groups) {
  Runner& runner = TheRunner();
  Fiber& fiber = *runner.fibers[runner.current];
  const auto arrived = [&](const Copy& copy) {
    if (copy.group + static_cast<size_t>(groups) >= fiber.num_groups) return false;
    fiber.has_unshown_copies = true;
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, copy.bytes);
    } else {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    return true;
  };
  fiber.copies.erase(std::remove_if(fiber.copies.begin(), fiber.copies.end(), arrived),
                     fiber.copies.end());
}

uint32_t SharedAddress(const void* shared) {
  return kSharedAddress + static_cast<uint32_t>(static_cast<const unsigned char*>(shared) -
                                                TheRunner().SharedMemory());
}
void ShowToProducts() {
  Runner& runner = TheRunner();
  runner.fibers[runner.current]->has_unshown_copies = false;
}
void BeginProducts() {
  Runner& runner = TheRunner();
  runner.fibers[runner.current]->may_multiply = true;
  runner.has_wgmma = true;
}
void EndProducts() {
  Runner& runner = TheRunner();
  ++runner.fibers[runner.current]->num_product_groups;
}

namespace {

// Returns an element of a matrix in shared memory with the 128-byte swizzle (PTX ISA, matrix
// descriptor and canonical layouts). k runs along its rows or, if it is transposed, row after row.
uint16_t MatrixElement(uint64_t matrix, int n, int k, bool is_transposed) {
  if (matrix >> 62 != 1) Broken("a matrix that is not swizzled by 128 bytes");
  const auto bytes = [matrix](int shift) {
    return static_cast<int>(matrix >> shift & 0x3fff) << 4;
  };
  const int leading = bytes(16), stride = bytes(32);
  const int place =
      bytes(0) + (is_transposed ? n / 64 * leading + n % 64 * 2 + k / 8 * stride + k % 8 * 128
                                : n / 8 * stride + n % 8 * 128 + k * 2);
  const int swizzled = place ^ (place >> 7 & 7) << 4;
  const void* const element =
      TheRunner().SharedMemory() + (swizzled - static_cast<int>(kSharedAddress));
  CheckShared(element, sizeof(uint16_t));
  return Element(element, 0);
}

// Computes a thread's part of a product: rows r and r + 8 of its warp's 16, columns c and c + 1 of
// each eight.
template <typename Number>
void Multiply(Runner& runner, const Product& product, std::vector<float>& sums) {
  const int lane = runner.current % kWarp, r = lane / 4, c = lane % 4 * 2;
  double rows[2][16];
  if (product.a != nullptr) {
    Shown shown;
    std::copy_n(product.a, 4, shown.words);
    const size_t turn = Exchange(runner, shown);
    for (int k = 0; k < 16; ++k) {
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = OfLane(runner, turn, r * 4 + k % 8 / 2).words[half + k / 8 * 2];
        rows[half][k] = k % 2 == 0 ? Low<Number>(pair) : High<Number>(pair);
      }
    }
  } else {
    for (int k = 0; k < 16; ++k) {
      for (int half = 0; half < 2; ++half) {
        const int row = runner.current / kWarp % 4 * 16 + r + half * 8;
        rows[half][k] = Low<Number>(MatrixElement(product.a_matrix, row, k, false));
      }
    }
  }
  for (int column = 0; column < 2 * product.n8; ++column) {
    double of_column[16];
    for (int k = 0; k < 16; ++k) {
      of_column[k] = Low<Number>(
          MatrixElement(product.b, column / 2 * 8 + c + column % 2, k, product.b_is_transposed));
    }
    for (int half = 0; half < 2; ++half) {
      float& to = sums[static_cast<size_t>(column / 2 * 4 + half * 2 + column % 2)];
      double sum = product.adds ? to : 0;
      for (int k = 0; k < 16; ++k) sum += rows[half][k] * of_column[k];
      to = static_cast<float>(sum);
    }
  }
}

void StartProduct(Product product) {
  Runner& runner = TheRunner();
  Fiber& fiber = *runner.fibers[runner.current];
  if (!fiber.may_multiply) Broken("a product before BeginProducts");
  for (int i = 0; i < runner.num_threads; ++i) {
    if (runner.fibers[i]->has_unshown_copies) Broken("a product of copies that it may not see");
  }
  product.group = fiber.num_product_groups;
  float* const d = &product.d[0][0];
  std::vector<float>& sums = fiber.sums[product.d];
  if (sums.empty()) sums.assign(d, d + product.n8 * 4);
  std::fill_n(d, product.n8 * 4, NAN);
  fiber.products.push_back(product);
}

}  // namespace

void AwaitProducts(int groups) {
  Runner& runner = TheRunner();
  Fiber& fiber = *runner.fibers[runner.current];
  size_t n = 0;
  for (const Product& product : fiber.products) {
    if (product.group + static_cast<size_t>(groups) >= fiber.num_product_groups) break;
    std::vector<float>& sums = fiber.sums[product.d];
    if (product.is_f16) {
      Multiply<Half>(runner, product, sums);
    } else {
      Multiply<uint16_t>(runner, product, sums);
    }
    ++n;
  }
  fiber.products.erase(fiber.products.begin(), fiber.products.begin() + static_cast<int64_t>(n));
  std::erase_if(fiber.sums, [&](const auto& sums) {
    for (const Product& product : fiber.products) {
      if (product.d == sums.first) return false;
    }
    std::copy(sums.second.begin(), sums.second.end(), &sums.first[0][0]);
    return true;
  });
  fiber.may_multiply = false;
}

template <typename Number>
void StartScores(float (*d)[4], uint64_t a, uint64_t b, bool adds) {
  StartProduct({.d = d,
                .n8 = 16,
                .a = nullptr,
                .a_matrix = a,
                .b = b,
                .b_is_transposed = false,
                .adds = adds,
                .is_f16 = std::is_same_v<Number, Half>,
                .group = 0});
}
template void StartScores<uint16_t>(float (*)[4], uint64_t, uint64_t, bool);
template void StartScores<Half>(float (*)[4], uint64_t, uint64_t, bool);

template <typename Number>
void StartValues(float (*d)[4], int n8, const uint32_t (&a)[4], uint64_t b) {
  StartProduct({.d = d,
                .n8 = n8,
                .a = &a[0],
                .a_matrix = 0,
                .b = b,
                .b_is_transposed = true,
                .adds = true,
                .is_f16 = std::is_same_v<Number, Half>,
                .group = 0});
}
template void StartValues<uint16_t>(float (*)[4], int, const uint32_t (&)[4], uint64_t);
template void StartValues<Half>(float (*)[4], int, const uint32_t (&)[4], uint64_t);

cudaError_t RunGrid(const char* name, dim3 grid, int threads, size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> thread) {
  // A device would refuse such a launch.
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      threads < 1 || threads > 1024 || threads % kWarp != 0 || shared_bytes > kMostShared) {
    return testing::CudaShim::Refuse(absl::StrCat(name, ": a grid that no device takes"));
  }
  return testing::CudaShim::Launch(name, stream, [=, thread = std::move(thread)] {
    RunBlocks(grid, threads, shared_bytes, thread);
  });
}

}  // namespace continuo::kernels::cuda
