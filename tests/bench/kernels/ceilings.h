// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/host/thread_pool.h"
#include "nlohmann/json.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace continuo::bench {

// Returns the wall time or, with --clock=cpu --threads=1, the time that this process ran, which
// neighbours that share the cores change less.
inline clockid_t bench_clock = CLOCK_MONOTONIC;

inline double Seconds() {
  timespec time;
  clock_gettime(bench_clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The read bandwidth and the peak of the machine on the given threads, at this moment. They are
// measured beside every figure, because neighbours change them.
class Ceilings {
 public:
  explicit Ceilings(int num_threads) : pool_(num_threads), bytes_(size_t{256} << 20) {
    memory_.reset(static_cast<char*>(std::aligned_alloc(64, bytes_)));
    std::memset(memory_.get(), 1, bytes_);
  }

  // Returns the GB/s of reading memory in order.
  double ReadBandwidth() {
    constexpr int kParts = 256;
    const size_t part = bytes_ / kParts;
    const double start = Seconds();
    pool_.Run(kParts, [&](int i, int) { Sink(ReadAll(memory_.get() + i * part, part)); });
    return static_cast<double>(bytes_) / (Seconds() - start) * 1e-9;
  }

  // The instructions by which a path multiplies: fused multiply-adds on floats, vdpbf16ps,
  // vpdpbusd.
  enum class Unit { kFma256, kFma512, kBf16, kVnni };

  // Returns G operations/s; a product and its sum are two.
  double Peak(Unit unit) {
    constexpr int kParts = 64, kRounds = 20000;
    const int products = unit == Unit::kFma256   ? 8
                         : unit == Unit::kFma512 ? 16
                         : unit == Unit::kBf16   ? 32
                                                 : 64;
    const double start = Seconds();
    pool_.Run(kParts, [&](int, int) {
      Sink(unit == Unit::kFma256   ? Fma256(kRounds)
           : unit == Unit::kFma512 ? Fma512(kRounds)
           : unit == Unit::kBf16   ? Bf16(kRounds)
                                   : Vnni(kRounds));
    });
    return double{kParts} * kRounds * 12 * products * 2 / (Seconds() - start) * 1e-9;
  }
  double MultiplyAdds(bool avx512) { return Peak(avx512 ? Unit::kFma512 : Unit::kFma256); }

 private:
  static void Sink(float value) { asm volatile("" : : "x"(value)); }

#if defined(__x86_64__)
  __attribute__((target("avx2"))) static float ReadAll(const char* p, size_t n) {
    __m256i sum[4] = {};
    for (size_t i = 0; i < n; i += 128) {
      for (int k = 0; k < 4; ++k) {
        sum[k] = _mm256_xor_si256(
            sum[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + k * 32)));
      }
    }
    const __m256i all =
        _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
    return _mm256_cvtss_f32(_mm256_castsi256_ps(all));
  }
  __attribute__((target("avx2,fma"))) static float Fma256(int rounds) {
    __m256 a[12] = {}, x = _mm256_set1_ps(0.5f);
    asm volatile("" : "+x"(x));
    for (int i = 0; i < 12; ++i) asm volatile("" : "+x"(a[i]));  // unknown, so not the same
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < 12; ++i) a[i] = _mm256_fmadd_ps(x, x, a[i]);
    }
    for (int i = 1; i < 12; ++i) a[0] = _mm256_add_ps(a[0], a[i]);
    return _mm256_cvtss_f32(a[0]);
  }
  __attribute__((target("avx512f"))) static float Fma512(int rounds) {
    __m512 a[12] = {}, x = _mm512_set1_ps(0.5f);
    asm volatile("" : "+v"(x));
    for (int i = 0; i < 12; ++i) asm volatile("" : "+v"(a[i]));  // unknown, so not the same
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < 12; ++i) a[i] = _mm512_fmadd_ps(x, x, a[i]);
    }
    for (int i = 1; i < 12; ++i) a[0] = _mm512_add_ps(a[0], a[i]);
    return _mm512_cvtss_f32(a[0]);
  }
  __attribute__((target("avx512f,avx512bf16"))) static float Bf16(int rounds) {
    __m512 a[12] = {};
    __m512i x = _mm512_set1_epi16(0x3f00);
    asm volatile("" : "+v"(x));
    for (int i = 0; i < 12; ++i) asm volatile("" : "+v"(a[i]));
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < 12; ++i) a[i] = _mm512_dpbf16_ps(a[i], (__m512bh)x, (__m512bh)x);
    }
    for (int i = 1; i < 12; ++i) a[0] = _mm512_add_ps(a[0], a[i]);
    return _mm512_cvtss_f32(a[0]);
  }
  __attribute__((target("avx512f,avx512vnni"))) static float Vnni(int rounds) {
    __m512i a[12] = {}, x = _mm512_set1_epi8(1);
    asm volatile("" : "+v"(x));
    for (int i = 0; i < 12; ++i) asm volatile("" : "+v"(a[i]));
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < 12; ++i) a[i] = _mm512_dpbusd_epi32(a[i], x, x);
    }
    for (int i = 1; i < 12; ++i) a[0] = _mm512_add_epi32(a[0], a[i]);
    return _mm512_cvtss_f32(_mm512_castsi512_ps(a[0]));
  }
#else
  static float ReadAll(const char* p, size_t n) {
    uint64_t sum = 0, word;
    for (size_t i = 0; i < n; i += 8) {
      std::memcpy(&word, p + i, 8);
      sum ^= word;
    }
    return static_cast<float>(sum);
  }
  static float Fma256(int) { return 0; }
  static float Fma512(int) { return 0; }
  static float Bf16(int) { return 0; }
  static float Vnni(int) { return 0; }
#endif

  struct Deleter {
    void operator()(char* p) const { std::free(p); }
  };
  kernels::host::ThreadPool pool_;
  size_t bytes_;
  std::unique_ptr<char, Deleter> memory_;
};

// The flags of every benchmark here: --isa, --threads, --rounds, --json FILE, and others by name.
class Flags {
 public:
  Flags(int argc, char** argv) {
    for (int i = 0; i < argc; ++i) command_ += std::string(i > 0 ? " " : "") + argv[i];
    for (int i = 1; i < argc; ++i) {
      const std::string arg = argv[i];
      const size_t equals = arg.find('=');
      if (arg.rfind("--", 0) != 0 || equals == std::string::npos) {
        std::fprintf(stderr, "flags are --name=value, not %s\n", argv[i]);
        std::exit(2);
      }
      values_[arg.substr(2, equals - 2)] = arg.substr(equals + 1);
    }
    if (Get("clock", std::string()) == "cpu") bench_clock = CLOCK_PROCESS_CPUTIME_ID;
  }
  std::string Get(const std::string& name, const std::string& otherwise) const {
    const auto it = values_.find(name);
    return it == values_.end() ? otherwise : it->second;
  }
  int Get(const std::string& name, int otherwise) const {
    return std::atoi(Get(name, std::to_string(otherwise)).c_str());
  }
  // "1,2,4" as numbers.
  std::vector<int> GetList(const std::string& name, const std::string& otherwise) const {
    std::vector<int> list;
    const std::string text = Get(name, otherwise);
    for (size_t at = 0; at < text.size(); at = text.find(',', at) + 1) {
      list.push_back(std::atoi(text.c_str() + at));
      if (text.find(',', at) == std::string::npos) break;
    }
    return list;
  }
  // An object's fields, with the date and the command line.
  void WriteJson(nlohmann::json results) const {
    const std::string path = Get("json", "");
    if (path.empty()) return;
    const std::time_t now = std::time(nullptr);
    char date[32];
    std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    results["date"] = date;
    results["command"] = command_;
    std::ofstream(path) << results.dump(2) << "\n";
  }

 private:
  std::map<std::string, std::string> values_;
  std::string command_;
};

// Makes the device of --threads (2) and --isa; ends the program where there is no such device.
inline std::unique_ptr<kernels::Device> DeviceOf(const Flags& flags) {
  auto made = kernels::MakeDevice(
      {.num_threads = flags.Get("threads", 2), .isa = flags.Get("isa", std::string("auto"))});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", std::string(made.status().message()).c_str());
    std::exit(2);
  }
  return *std::move(made);
}

}  // namespace continuo::bench
