// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tells the tenant of a client by its bearer key. The keys come from a file that is read again when
// it changes. Knows no protocol: the gRPC and the HTTP side pass the values of their headers.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/base/watched_file.h"
#include "services/gateway/requests/key_ring.h"

namespace continuo::gateway {

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
  // Tells when a key expires. Outlives the authenticator; null means the system's clock.
  const Clock* clock = nullptr;
};

// The caller of a request.
struct Caller {
  std::string tenant;
  std::shared_ptr<const KeyGrant> key;  // null where no keys are needed
};

// Why the caller may not load or unload the LoRA adapter of a name: PERMISSION_DENIED where its key
// has no admin=true, or is not for a model of that name. OK where no keys are needed.
absl::Status CheckAdapterUpdate(const Caller& caller, std::string_view adapter);

// Tells who makes a call. Has a thread that watches the file of keys. Thread-safe.
class Authenticator {
 public:
  // INVALID_ARGUMENT names the flag of a file that cannot be read or has a bad line or no key, or
  // of options that contradict each other.
  static absl::StatusOr<std::unique_ptr<Authenticator>> Open(AuthOptions options);
  Authenticator(const Authenticator&) = delete;
  Authenticator& operator=(const Authenticator&) = delete;

  // Returns who makes a call with these values of the headers `authorization` and `x-tenant-id`, ""
  // for none. UNAUTHENTICATED without a valid key where keys are needed, also with one that has
  // expired; INVALID_ARGUMENT if a trusted tenant is no valid id.
  absl::StatusOr<Caller> Authenticate(std::string_view authorization,
                                      std::string_view tenant_header) const;

  // Reads the file again. A broken one changes nothing.
  void Reload();

 private:
  explicit Authenticator(AuthOptions options) : options_(std::move(options)) {}
  void OnFile(const absl::StatusOr<std::string>& text);

  const AuthOptions options_;
  const SystemClock system_clock_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const KeyRing> keys_ ABSL_GUARDED_BY(mutex_);  // null where none are needed
  std::unique_ptr<WatchedFile> file_;                            // the same
};

}  // namespace continuo::gateway
