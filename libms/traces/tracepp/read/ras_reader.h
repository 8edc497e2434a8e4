// Reads what NCCL's RAS prints (ncclras, since NCCL 2.24): its text, which lists outliers only, and its JSON.
#pragma once

#include <string_view>

#include "tracepp/read/formats.h"

namespace ms::tracepp {

bool is_ras_output(std::string_view beginning, bool is_named);

class RasReader final : public TraceReader {
 public:
  explicit RasReader(RunTrace& trace) : trace_(trace) {}
  std::int64_t read(TextInput& input) override;

 private:
  RunTrace& trace_;
};

}  // namespace ms::tracepp
