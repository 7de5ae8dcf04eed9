// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace continuo::cli {
namespace {

// Owns a file descriptor. -1 is none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status SystemError(const std::string& what, int code) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(code)));
}

// A file in memory, so that nothing has to be written while the command runs.
absl::StatusOr<FileDescriptor> InputFile(const std::string& input) {
  FileDescriptor file(memfd_create("input", MFD_CLOEXEC));
  if (file.get() < 0) return SystemError("memfd_create", errno);
  for (size_t done = 0; done < input.size();) {
    const ssize_t n = write(file.get(), input.data() + done, input.size() - done);
    if (n < 0 && errno != EINTR) return SystemError("write", errno);
    if (n > 0) done += static_cast<size_t>(n);
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

// One of the command's streams, read as it comes.
struct Stream {
  FileDescriptor read_end, write_end;
  std::string text;

  absl::Status Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe2", errno);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
    fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    return absl::OkStatus();
  }
  // Reads what is there and keeps `max_bytes` in all. Returns false where there was more. Reads no
  // more than a pipe holds, so that a command that never stops does not keep this here.
  bool Read(uint64_t max_bytes) {
    bool whole = true;
    for (int i = 0; i < 2 && read_end.get() >= 0; ++i) {
      char buffer[1 << 16];
      const ssize_t n = read(read_end.get(), buffer, sizeof(buffer));
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) {
        read_end.Reset();
        break;
      }
      const size_t room = max_bytes - text.size();
      text.append(buffer, std::min(static_cast<size_t>(n), room));
      whole = whole && static_cast<size_t>(n) <= room;
    }
    return whole;
  }
};

// Starts the command in a process group of its own, with no file but its three streams.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, int in, int out, int err) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // This process blocks signals that it waits for, and ignores others.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int code = posix_spawnp(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (code != 0) return SystemError(absl::StrCat("cannot start \"", command[0], "\""), code);
  return pid;
}

void Signal(int event_fd) {
  const uint64_t one = 1;
  // This fails only where the event is set already.
  (void)!write(event_fd, &one, sizeof(one));
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& command,
                                         const std::string& input, const CommandLimits& limits,
                                         Interrupt& interrupt) {
  FileDescriptor ended(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FileDescriptor interrupted(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (ended.get() < 0 || interrupted.get() < 0) return SystemError("eventfd", errno);
  absl::StatusOr<FileDescriptor> in = InputFile(input);
  if (!in.ok()) return in.status();
  Stream out, err;
  for (Stream* stream : {&out, &err}) {
    if (const absl::Status status = stream->Open(); !status.ok()) return status;
  }
  const Interrupt::Scope scope(&interrupt, [&] { Signal(interrupted.get()); });
  const absl::Time deadline = absl::Now() + limits.timeout;
  const absl::StatusOr<pid_t> pid =
      Spawn(command, in->get(), out.write_end.get(), err.write_end.get());
  if (!pid.ok()) return pid.status();
  out.write_end.Reset();
  err.write_end.Reset();
  // This thread only waits. The child is reaped below, so the numbers of its process and its group
  // stay taken until then.
  std::thread waiter([&] {
    siginfo_t info;
    while (waitid(P_PID, static_cast<id_t>(*pid), &info, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
    Signal(ended.get());
  });
  CommandResult result;
  bool running = true, cancelled = false, cut = false;
  while (running && !cancelled && !cut && result.end != CommandResult::End::kTimeout) {
    pollfd files[] = {{ended.get(), POLLIN, 0},
                      {interrupted.get(), POLLIN, 0},
                      {out.read_end.get(), POLLIN, 0},
                      {err.read_end.get(), POLLIN, 0}};
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    const timespec wait = absl::ToTimespec(std::min(left, absl::Hours(1)));
    const int ready = ppoll(files, std::size(files), &wait, nullptr);
    if (ready < 0) continue;
    running = files[0].revents == 0;
    cancelled = files[1].revents != 0;
    cut = !out.Read(limits.max_bytes);
    // More messages are not kept, but do not end the command.
    err.Read(limits.max_bytes);
    if (running && !cancelled && !cut && absl::Now() >= deadline) {
      result.end = CommandResult::End::kTimeout;
    }
  }
  kill(-*pid, SIGKILL);
  waiter.join();
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (cancelled) return absl::CancelledError("interrupted");
  if (cut) {
    result.end = CommandResult::End::kCut;
  } else if (result.end != CommandResult::End::kTimeout) {
    result.end = WIFSIGNALED(status) ? CommandResult::End::kSignal : CommandResult::End::kExit;
    result.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }
  result.output = std::move(out.text);
  result.message = std::move(err.text);
  return result;
}

}  // namespace continuo::cli
