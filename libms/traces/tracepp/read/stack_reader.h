// Reads stacks of processes as py-spy dump, Python's faulthandler, gdb, and the agents of ms-driver write them: one
// thread of each process, the one that runs the program. The rank is that of the text, or of the file's name.
#pragma once

#include <string_view>

#include "tracepp/read/formats.h"

namespace ms::tracepp {

bool is_stack_text(std::string_view beginning, bool is_named);

class StackReader final : public TraceReader {
 public:
  explicit StackReader(RunTrace& trace) : trace_(trace) {}
  std::int64_t read(TextInput& input) override;

 private:
  RunTrace& trace_;
};

}  // namespace ms::tracepp
