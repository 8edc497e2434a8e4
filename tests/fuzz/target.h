// A parser under fuzzing, as a row of a table: main.cpp runs the one that the command line names.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::fuzz {

struct Target {
  std::string_view name;
  void (*parse)(std::string_view bytes);     // may throw ms::Error, nothing else
  std::vector<std::string> (*seeds)();       // made by our own writers, where there are any
  std::vector<std::string_view> words = {};  // for the dictionary
};

std::span<const Target> text_targets();
std::span<const Target> file_targets();
std::span<const Target> trace_targets();
std::span<const Target> tokenizer_targets();
std::span<const Target> run_targets();

// What must hold of everything that a parser accepts.
inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// Writes a file for parsers that open one, in a directory in memory that is gone with the process; returns its path.
std::string put(const std::string& name, std::string_view bytes);

}  // namespace ms::fuzz
