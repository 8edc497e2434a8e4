// All evidence of a run that hung: finds the files of PyTorch's flight recorders, of stacks, of NCCL's RAS, of
// heartbeats and the log, and has ms-tracepp hang judge them together.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/command.h"

namespace ms::driver {

// Where ms-tracepp sees the cause.
enum class HangFault : std::uint8_t {
  unknown,
  program,   // which would hang on any node
  mismatch,  // ranks called different operations, or in another order, whichever of them is right
  node       // its host, its device or its network
};

struct HangVerdict {
  int rank = -1;          // not known: then the host is
  std::string host = {};  // empty: not known
  std::string node = {};  // of the rank, as Slurm calls it; empty: not known
  double confidence = 0;
  HangFault fault = HangFault::unknown;
  std::string why = {};

  bool is_sure() const { return confidence >= 0.8; }
};

// The start of the names of dumps, as PyTorch takes it from the environment; empty: none is named. Pure.
std::string flight_prefix(const std::function<const char*(const char*)>& variable);
// The files of this user or of root whose names begin so and that were written after `since_s`, in seconds since 1970:
// those of an earlier attempt tell of another hang. Links are left out.
std::vector<std::string> flight_files(const std::string& prefix, double since_s);
// The files that agents and the driver left of an attempt that hung: stacks, reports of RAS, heartbeats.
std::vector<std::string> evidence_files(const std::string& dir, int attempt, double since_s);
// Writes the newest 16 MiB of a log, or of its first `until_bytes`, to `copy`: whole lines, of the newest attempt.
void copy_log(const std::string& log, const std::string& copy,
              std::int64_t until_bytes = std::numeric_limits<std::int64_t>::max());
// Reads the first suspect of what "ms-tracepp hang --json" prints, whatever else is in the output; nullopt: none. Pure.
std::optional<HangVerdict> read_hang_verdict(std::string_view output);

class HangJudge {
 public:
  // `log`: what the attempt printed, of which `until_bytes` count; `output`: the file for what ms-tracepp prints,
  // without ".json".
  void begin(std::vector<std::string> files, const std::string& log, std::int64_t until_bytes,
             const std::string& output, double now_s);
  // Whether it is at work, and may still be.
  bool busy(double now_s);
  std::optional<HangVerdict> take();

 private:
  std::string output_;
  std::optional<LongCommand> command_;
  double began_s_ = 0;
};

}  // namespace ms::driver
