// SPDX-License-Identifier: Apache-2.0
// continuo, the command-line client: parses the flags and runs one command.
#include <unistd.h>

#include <iostream>
#include <thread>

#include "services/cli/bench/bench.h"
#include "services/cli/chat/chat.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"
#include "services/cli/fleet/fleet.h"
#include "services/cli/fleet/top.h"
#include "services/cli/fleet/trace.h"
#include "services/cli/simulate/simulate.h"
#include "services/common/flags.h"
#include "services/common/shutdown.h"

int main(int argc, char** argv) {
  using namespace continuo;
  common::Flags flags(
      "continuo",
      "Command-line client: streams to the terminal, shows the fleet, runs benchmarks.");
  cli::AnswerFlags generate_flags;
  cli::ChatFlags chat_flags;
  cli::FleetFlags fleet_flags;
  cli::TopFlags top_flags;
  cli::TraceFlags trace_flags;
  cli::BenchFlags bench_flags;
  common::Flags& generate =
      flags.Subcommand("generate", "Continues a text and streams the answer.");
  AddGenerateFlags(generate, &generate_flags);
  common::Flags& chat = flags.Subcommand("chat", "Holds a conversation.");
  AddChatFlags(chat, &chat_flags);
  common::Flags& fleet = flags.Subcommand(
      "fleet", "Shows the workers: state, KV cache, running and waiting requests.");
  AddFleetFlags(fleet, &fleet_flags);
  common::Flags& top = flags.Subcommand("top", "Shows a worker's batch, live.");
  AddTopFlags(top, &top_flags);
  common::Flags& trace =
      flags.Subcommand("trace", "Writes a worker's steps and requests for Perfetto.");
  AddTraceFlags(trace, &trace_flags);
  common::Flags& bench =
      flags.Subcommand("bench", "Generates load and reports throughput and latencies.");
  AddBenchFlags(bench, &bench_flags);
  cli::SimulateFlags simulate_flags;
  common::Flags& simulate = flags.Subcommand(
      "simulate", "Predicts throughput and latencies of a fleet, on a virtual clock.");
  AddSimulateFlags(simulate, &simulate_flags);
  if (const std::optional<int> code = flags.Parse(argc, argv)) return *code;

  // Made before any other thread. SIGTERM and Ctrl-C cancel the work in progress; without any, or
  // at the third time in one answer, they end the program.
  common::ShutdownSignal shutdown;
  cli::Interrupt interrupt;
  std::thread([&] {
    while (true) {
      const int signal = shutdown.Wait();
      if (!interrupt.Signal()) _exit(128 + signal);
    }
  }).detach();

  std::ios::sync_with_stdio(false);
  cli::Console console = {std::cin, std::cout, std::cerr};
  console.out_terminal = isatty(STDOUT_FILENO) != 0;
  console.err_terminal = isatty(STDERR_FILENO) != 0;
  console.interactive = console.out_terminal && isatty(STDIN_FILENO) != 0;
  int code = 2;
  if (generate.chosen()) code = RunGenerate(generate_flags, interrupt, console);
  if (chat.chosen()) code = RunChat(chat_flags, interrupt, console);
  if (fleet.chosen()) code = RunFleet(fleet_flags, interrupt, console);
  if (top.chosen()) code = RunTop(top_flags, interrupt, console);
  if (trace.chosen()) code = RunTrace(trace_flags, interrupt, console);
  if (bench.chosen()) code = RunBench(bench_flags, interrupt, console);
  if (simulate.chosen()) code = RunSimulate(simulate_flags, interrupt, console);
  std::cout.flush();
  // The thread that waits for signals still runs, so destructors do not.
  _exit(code);
}
