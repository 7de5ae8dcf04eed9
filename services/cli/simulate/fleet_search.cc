// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/fleet_search.h"

#include <algorithm>
#include <cmath>

#include "services/base/status_macros.h"
#include "services/cli/bench/bench_report.h"
#include "services/cli/client/terminal.h"
#include "services/cli/simulate/svg.h"

namespace continuo::cli {
namespace {

// Places in the plot, in pixels.
constexpr double kWidth = 720, kHeight = 400, kLeft = 64, kRight = 168, kTop = 40, kBottom = 48;
constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};

std::string Cell(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 1, ' ') + text;
}

}  // namespace

absl::StatusOr<FleetSearch> FindSmallestFleet(
    const Slo& slo, int least, int most,
    absl::FunctionRef<absl::StatusOr<simulate::Results>(int workers)> run) {
  FleetSearch search{.slo = slo};
  const auto holds = [&](int workers) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(simulate::Results results, run(workers));
    const bool held = Holds(slo, results);
    const auto at =
        std::ranges::upper_bound(search.tried, workers, {}, &simulate::Results::workers);
    search.tried.insert(at, std::move(results));
    return held;
  };
  int below = least - 1, above = least;  // the largest that fails, and the next to try
  while (true) {
    ASSIGN_OR_RETURN(const bool held, holds(above));
    if (held) break;
    below = above;
    if (above == most) return search;
    above = std::min(most, std::max(1, 2 * above));
  }
  while (above - below > 1) {
    const int middle = below + (above - below) / 2;
    ASSIGN_OR_RETURN(const bool held, holds(middle));
    (held ? above : below) = middle;
  }
  search.smallest = above;
  return search;
}

std::string FormatSearch(const FleetSearch& search) {
  std::string text = Cell("workers", 8);
  for (const SloTerm& term : search.slo.terms) text += Cell(term.name, 12);
  text += Cell("errors", 9) + Cell("busy", 8) + Cell("tokens/s", 10) + "\n";
  for (const simulate::Results& r : search.tried) {
    text += Cell(std::to_string(r.workers), 8);
    for (const SloTerm& term : search.slo.terms) {
      text += Cell(FormatSeconds(ValueOf(term, r)), 12);
    }
    const double seconds = absl::ToDoubleSeconds(r.duration);
    text += Cell(SvgNumber(100 * ErrorsOf(r)) + "%", 9) +
            Cell(std::to_string(std::lround(100 * r.busy)) + "%", 8) +
            Cell(FormatCount(PerSecond(r.output_tokens, seconds)), 10) +
            (Holds(search.slo, r) ? "  holds\n" : "\n");
  }
  text += search.smallest.has_value()
              ? "smallest fleet that holds the SLO: " + std::to_string(*search.smallest) +
                    (*search.smallest == 1 ? " worker\n" : " workers\n")
              : "no fleet of at most " + std::to_string(search.tried.back().workers) +
                    " workers holds the SLO\n";
  return text;
}

std::string PlotSearch(const FleetSearch& search) {
  // Both axes are logarithmic; the limits of all terms are one line.
  double least = 0.5, most = 2;
  for (const simulate::Results& r : search.tried) {
    for (const SloTerm& term : search.slo.terms) {
      const double ratio = std::max(1e-3, ValueOf(term, r) / term.limit);
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
  }
  // A minimum of zero workers has no place on such an axis.
  const double first = std::max(0.5, static_cast<double>(search.tried.front().workers));
  const double last = std::max<double>(search.tried.back().workers, first + 1);
  const auto x = [&](double workers) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(std::max(workers, first) / first) /
                       std::log(last / first);
  };
  const auto y = [&](double ratio) {
    return kTop + (kHeight - kTop - kBottom) * std::log(most / ratio) / std::log(most / least);
  };
  std::string svg = SvgBegin(kWidth, kHeight, "latency over its limit, by number of workers");
  for (double decade = std::pow(10, std::ceil(std::log10(least))); decade <= most; decade *= 10) {
    svg += SvgStroke(kLeft, y(decade), kWidth - kRight, y(decade), "stroke=\"#ddd\"");
    svg += SvgLabel(kLeft - 6, y(decade) + 4, "end", SvgNumber(decade));
  }
  svg += SvgStroke(kLeft, y(1), kWidth - kRight, y(1), "stroke=\"black\" stroke-dasharray=\"6 4\"");
  svg += SvgLabel(kWidth - kRight + 6, y(1) + 4, "start", "limit");
  double labelled = -HUGE_VAL;
  for (const simulate::Results& r : search.tried) {
    const double at = x(r.workers);
    svg += SvgStroke(at, kHeight - kBottom, at, kHeight - kBottom + 4, "stroke=\"black\"");
    if (at - labelled < 24) continue;
    labelled = at;
    svg += SvgLabel(at, kHeight - kBottom + 18, "middle", std::to_string(r.workers));
  }
  svg +=
      SvgStroke(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "stroke=\"black\"");
  svg += SvgLabel((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "workers");
  for (size_t i = 0; i < search.slo.terms.size(); ++i) {
    const SloTerm& term = search.slo.terms[i];
    const std::string colour = kColours[i % std::size(kColours)];
    std::string points;
    for (const simulate::Results& r : search.tried) {
      const double at = y(std::max(1e-3, ValueOf(term, r) / term.limit));
      points += SvgNumber(x(r.workers)) + "," + SvgNumber(at) + " ";
      svg += "<circle cx=\"" + SvgNumber(x(r.workers)) + "\" cy=\"" + SvgNumber(at) +
             "\" r=\"3\" fill=\"" + colour + "\"/>\n";
    }
    svg += "<polyline fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"1.5\" points=\"" +
           points + "\"/>\n";
    const double row = kTop + 16 * static_cast<double>(i);
    svg += SvgKey(kWidth - kRight + 28, row - 9, colour);
    svg += SvgLabel(kWidth - kRight + 44, row, "start",
                    term.name + " &#8804; " + FormatSeconds(term.limit));
  }
  if (search.smallest.has_value()) {
    const double at = x(*search.smallest);
    svg +=
        SvgStroke(at, kTop, at, kHeight - kBottom, "stroke=\"#2ca02c\" stroke-dasharray=\"2 3\"");
    svg += SvgLabel(at + 4, kTop + 10, "start", std::to_string(*search.smallest) + " hold");
  }
  return svg + "</svg>\n";
}

}  // namespace continuo::cli
