// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tells the tenant of a client by its bearer key. The keys come from a file that is read again when
// it changes. Knows no protocol: the gRPC and the HTTP side pass the values of their headers.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// The keys of one version of the file, as SHA-256 digests. Immutable.
class KeyRing {
 public:
  // Each line is `TENANT KEY` or `TENANT sha256:HEX`, where HEX is the key's SHA-256 in 64 digits;
  // empty lines and lines that begin with # are skipped. A tenant has 1 to 128 printable ASCII
  // characters, a key 16 to 512, both without spaces. A tenant may have several keys, a key only
  // one tenant. INVALID_ARGUMENT names the line, never its content.
  static absl::StatusOr<KeyRing> Parse(std::string_view text);

  // The tenant of a key. Takes the same time whether and whichever entry agrees: every digest is
  // compared, each in constant time.
  std::optional<std::string> TenantOf(std::string_view key) const;

  int num_keys() const { return static_cast<int>(entries_.size()); }

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    std::string tenant;
  };
  static Digest DigestOf(std::string_view key);

  std::vector<Entry> entries_;
};

struct AuthOptions {
  // If empty, no key is needed.
  std::string keys_file;
  // Without keys, believes the x-tenant-id of clients; otherwise every client is "default".
  bool trust_tenant_header = false;
  // Time between two looks at the file.
  absl::Duration poll_interval = absl::Seconds(1);
  // Called at each change of the file, on the watching thread or in Reload, with the number of keys
  // or the reason why the previous keys stay.
  std::function<void(const absl::StatusOr<int>& num_keys)> on_change;
};

// Tells the tenant of a call. Has a thread that watches the file of keys. Thread-safe.
class Authenticator {
 public:
  // INVALID_ARGUMENT names the flag of a file that cannot be read or has a bad line or no key, or
  // of options that contradict each other.
  static absl::StatusOr<std::unique_ptr<Authenticator>> Open(AuthOptions options);
  // Ends the thread that watches the file.
  ~Authenticator();
  Authenticator(const Authenticator&) = delete;
  Authenticator& operator=(const Authenticator&) = delete;

  // The tenant of a call with these values of the headers `authorization` and `x-tenant-id`, "" for
  // none. UNAUTHENTICATED without a valid key where keys are needed; INVALID_ARGUMENT if a
  // trusted tenant is no valid id.
  absl::StatusOr<std::string> Authenticate(std::string_view authorization,
                                           std::string_view tenant_header) const;

  // Reads the file again. A broken one changes nothing.
  void Reload();

 private:
  explicit Authenticator(AuthOptions options) : options_(std::move(options)) {}

  const AuthOptions options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const KeyRing> keys_ ABSL_GUARDED_BY(mutex_);  // null where none are needed
  absl::Mutex reload_mutex_;                                     // one reload at a time
  // The result of the last look: the file's text, or the reason why there is none.
  absl::StatusOr<std::string> seen_ ABSL_GUARDED_BY(reload_mutex_) = std::string();
  absl::Notification stop_;
  std::thread watcher_;
};

}  // namespace continuo::gateway
