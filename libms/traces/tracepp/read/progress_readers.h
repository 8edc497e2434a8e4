// Reads what tells how far a run got, and when: the status that ms-driver writes from heartbeats, and the files of
// NCCL's Inspector plugin, of which ms-netcheck inspector reads how fast each operation was.
#pragma once

#include <string_view>

#include "tracepp/read/formats.h"

namespace ms::tracepp {

bool is_driver_status(std::string_view beginning, bool is_named);
bool is_inspector_file(std::string_view beginning, bool is_named);

class DriverStatusReader final : public TraceReader {
 public:
  explicit DriverStatusReader(RunTrace& trace) : trace_(trace) {}
  std::int64_t read(TextInput& input) override;

 private:
  RunTrace& trace_;
};

// The files of all processes are one report.
class InspectorReader final : public TraceReader {
 public:
  explicit InspectorReader(RunTrace& trace) : trace_(trace) {}
  std::int64_t read(TextInput& input) override;

 private:
  RunTrace& trace_;
};

}  // namespace ms::tracepp
