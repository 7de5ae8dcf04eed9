// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/scaling_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "services/cli/bench/bench_report.h"
#include "services/cli/client/terminal.h"
#include "services/cli/simulate/svg.h"

namespace continuo::cli {
namespace {

using simulate::Results;
using simulate::ScalePoint;

constexpr int kRows = 20;

// The means of an interval.
struct Interval {
  double begin = 0, seconds = 0;
  double wanted = 0, starting = 0, serving = 0, draining = 0;
};

Interval MeanOf(const Results& r, double begin, double end) {
  Interval mean = {.begin = begin, .seconds = end - begin};
  for (size_t i = 0; i < r.scaling.size(); ++i) {
    const ScalePoint& point = r.scaling[i];
    const double from = std::max(begin, absl::ToDoubleSeconds(point.time));
    const double to = i + 1 < r.scaling.size()
                          ? std::min(end, absl::ToDoubleSeconds(r.scaling[i + 1].time))
                          : end;
    if (to <= from) continue;
    const double share = (to - from) / mean.seconds;
    mean.wanted += share * point.wanted;
    mean.starting += share * point.pods.starting;
    mean.serving += share * point.pods.serving;
    mean.draining += share * point.pods.draining;
  }
  return mean;
}

// The fewest and the most workers that served at any time, and the changes that were asked for.
struct Bounds {
  int least = 0, most = 0, times_up = 0, times_down = 0;
};

Bounds BoundsOf(const Results& r) {
  Bounds bounds = {.least = r.scaling[0].pods.serving, .most = r.scaling[0].pods.serving};
  for (size_t i = 1; i < r.scaling.size(); ++i) {
    bounds.least = std::min(bounds.least, r.scaling[i].pods.serving);
    bounds.most = std::max(bounds.most, r.scaling[i].pods.serving);
    bounds.times_up += r.scaling[i].wanted > r.scaling[i - 1].wanted;
    bounds.times_down += r.scaling[i].wanted < r.scaling[i - 1].wanted;
  }
  return bounds;
}

double SecondsOf(const Results& r) { return std::max(1e-9, absl::ToDoubleSeconds(r.duration)); }

}  // namespace

std::string FormatScaling(const Results& r) {
  if (r.scaling.empty()) return "";
  const Bounds bounds = BoundsOf(r);
  const Interval mean = MeanOf(r, 0, SecondsOf(r));
  char line[160];
  std::snprintf(
      line, sizeof(line),
      "%d to %d workers serve, %.2f on average, %d times up and %d down, %.4g worker hours",
      bounds.least, bounds.most, mean.serving, bounds.times_up, bounds.times_down,
      absl::ToDoubleHours(r.worker_time));
  std::string text = TitledLine("scaling", line);
  text += "      from   wanted  starting  serving  draining\n";
  const double step = SecondsOf(r) / kRows;
  for (int i = 0; i < kRows; ++i) {
    const Interval row = MeanOf(r, i * step, (i + 1) * step);
    std::snprintf(line, sizeof(line), "%10s %8.1f %9.1f %8.1f %9.1f  ",
                  i == 0 ? "0 s" : FormatSeconds(row.begin).c_str(), row.wanted, row.starting,
                  row.serving, row.draining);
    const double scale = bounds.most > 40 ? 40.0 / bounds.most : 1;
    text += line + std::string(static_cast<size_t>(std::lround(scale * row.serving)), '#') + "\n";
  }
  return text;
}

nlohmann::ordered_json ScalingJson(const Results& r) {
  const Bounds bounds = BoundsOf(r);
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const ScalePoint& point : r.scaling) {
    changes.push_back({{"seconds", absl::ToDoubleSeconds(point.time)},
                       {"wanted", point.wanted},
                       {"starting", point.pods.starting},
                       {"serving", point.pods.serving},
                       {"draining", point.pods.draining}});
  }
  return {{"least", bounds.least},
          {"most", bounds.most},
          {"mean", MeanOf(r, 0, SecondsOf(r)).serving},
          {"times_up", bounds.times_up},
          {"times_down", bounds.times_down},
          {"workers", changes}};
}

std::string PlotScaling(const Results& r) {
  // In pixels.
  constexpr double kWidth = 720, kHeight = 320, kLeft = 64, kRight = 120, kTop = 40, kBottom = 48;
  const double seconds = SecondsOf(r);
  int most = 1;
  for (const ScalePoint& point : r.scaling) {
    most = std::max({most, point.wanted, point.pods.replicas() + point.pods.draining});
  }
  const auto x = [&](double at) { return kLeft + (kWidth - kLeft - kRight) * at / seconds; };
  const auto y = [&](double workers) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * workers / most;
  };
  std::string svg = SvgBegin(kWidth, kHeight, "workers over time");
  const int stride = std::max(1, (most + 7) / 8);
  for (int workers = 0; workers <= most; workers += stride) {
    svg += SvgStroke(kLeft, y(workers), kWidth - kRight, y(workers), "stroke=\"#ddd\"");
    svg += SvgLabel(kLeft - 6, y(workers) + 4, "end", std::to_string(workers));
  }
  for (int i = 0; i <= 6; ++i) {
    const double at = seconds * i / 6;
    svg += SvgStroke(x(at), kHeight - kBottom, x(at), kHeight - kBottom + 4, "stroke=\"black\"");
    svg += SvgLabel(x(at), kHeight - kBottom + 18, "middle", FormatSeconds(at));
  }
  const auto line = [&](const char* name, const char* colour, int row, auto count) {
    std::string points;
    for (size_t i = 0; i < r.scaling.size(); ++i) {
      const double from = absl::ToDoubleSeconds(r.scaling[i].time);
      const double to = i + 1 < r.scaling.size() ? absl::ToDoubleSeconds(r.scaling[i + 1].time)
                                                 : std::max(from, seconds);
      const std::string height = SvgNumber(y(count(r.scaling[i])));
      points += SvgNumber(x(from)) + "," + height + " " + SvgNumber(x(to)) + "," + height + " ";
    }
    svg += "<polyline fill=\"none\" stroke=\"" + std::string(colour) +
           "\" stroke-width=\"1.5\" points=\"" + points + "\"/>\n";
    const double at = kTop + 16 * row;
    svg += SvgKey(kWidth - kRight + 12, at - 9, colour);
    svg += SvgLabel(kWidth - kRight + 28, at, "start", name);
  };
  line("wanted", "#999999", 0, [](const ScalePoint& p) { return p.wanted; });
  line("draining", "#d62728", 1, [](const ScalePoint& p) { return p.pods.draining; });
  line("serving", "#1f77b4", 2, [](const ScalePoint& p) { return p.pods.serving; });
  return svg + "</svg>\n";
}

}  // namespace continuo::cli
