// PyTorch's flight recorders of a run that hung, and what NCCL's RAS reported of it: finds the files, and has
// ms-tracepp judge them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/command.h"

namespace ms::driver {

struct FlightVerdict {
  int rank = -1;     // not known: then the host is
  std::string host;  // empty: not known
  double confidence = 0;
  // Ranks called different operations, or in another order: the program's mistake, whichever of them is right.
  bool mismatch = false;
  std::string why;
};

// The start of the names of dumps, as PyTorch takes it from the environment; empty: none is named. Pure.
std::string flight_prefix(const std::function<const char*(const char*)>& variable);
// The files of this user or of root whose names begin so and that were written after `since_s`, in seconds since 1970:
// those of an earlier attempt tell of another hang. Links are left out.
std::vector<std::string> flight_files(const std::string& prefix, double since_s);
// Reads the first suspect of what "ms-tracepp hang --json" prints, whatever else is in the output; nullopt: none. Pure.
std::optional<FlightVerdict> read_flight_verdict(std::string_view output);

class FlightJudge {
 public:
  // `output`: the file for what ms-tracepp prints, without ".json".
  void begin(const std::vector<std::string>& files, const std::string& output, double now_s);
  // Whether it is at work, and may still be.
  bool busy(double now_s);
  std::optional<FlightVerdict> take();

 private:
  std::string output_;
  std::optional<LongCommand> command_;
  double began_s_ = 0;
};

}  // namespace ms::driver
