// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pieces of an SVG image, as text. Places are in pixels.

#include <cstdio>
#include <string>

namespace continuo::cli {

// Four significant digits.
inline std::string SvgNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

// The begin of an image on white, with its title.
inline std::string SvgBegin(double width, double height, const std::string& title) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + SvgNumber(width) + "\" height=\"" +
         SvgNumber(height) +
         "\" font-family=\"sans-serif\" font-size=\"12\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
         "<text x=\"64\" y=\"22\" text-anchor=\"start\">" + title + "</text>\n";
}

// `anchor` is start, middle or end.
inline std::string SvgLabel(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + SvgNumber(x) + "\" y=\"" + SvgNumber(y) + "\" text-anchor=\"" + anchor +
         "\">" + text + "</text>\n";
}

// `style` has attributes such as stroke="black".
inline std::string SvgStroke(double x1, double y1, double x2, double y2, const char* style) {
  return "<line x1=\"" + SvgNumber(x1) + "\" y1=\"" + SvgNumber(y1) + "\" x2=\"" + SvgNumber(x2) +
         "\" y2=\"" + SvgNumber(y2) + "\" " + style + "/>\n";
}

// A small square beside an entry of a legend.
inline std::string SvgKey(double x, double y, const std::string& colour) {
  return "<rect x=\"" + SvgNumber(x) + "\" y=\"" + SvgNumber(y) +
         "\" width=\"10\" height=\"10\" fill=\"" + colour + "\"/>\n";
}

}  // namespace continuo::cli
